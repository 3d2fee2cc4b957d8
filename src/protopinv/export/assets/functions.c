static void pick(const float *x, float *y, const unsigned char *used, int n)
{
    for (int i = 0; i < n; i++) {
        if (used[i / 8] >> i % 8 & 1) {
            *y++ = x[i];
        }
    }
}

static void shift(const float *x, float *y, const float *centre, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] = x[i] - centre[i];
    }
}

static void squash(const float *x, float *y, int n, const int *column, const float *centre,
                   const float *width, int chosen)
{
    for (int i = 0; i < n; i++) {
        y[i] = x[i];
    }
    for (int i = 0; i < chosen; i++) {
        y[column[i]] = asinhf((x[column[i]] - centre[i]) / width[i]);
    }
}

static void clip(const float *x, float *y, int n, const int *column, const float *centre,
                 const float *width, int chosen)
{
    for (int i = 0; i < n; i++) {
        y[i] = x[i];
    }
    for (int i = 0; i < chosen; i++) {
        float z = (x[column[i]] - centre[i]) / width[i];
        z = z > 1e6f ? 1e6f : (z < -1e6f ? -1e6f : z);
        y[column[i]] = z / sqrtf(1.0f + (z / 3.0f) * (z / 3.0f));
    }
}

/* Some features as they are, and how far each step of one has risen. */
static void rise(const float *x, float *y, const int *raw, const int *column, const float *low,
                 const float *high, int n_raw, int n_steps)
{
    for (int i = 0; i < n_raw; i++) {
        y[i] = x[raw[i]];
    }
    for (int i = 0; i < n_steps; i++) {
        const float z = (x[column[i]] - low[i]) / (high[i] - low[i]);
        y[n_raw + i] = z > 0.0f ? (z < 1.0f ? z : 1.0f) : 0.0f;
    }
}

static void add(const float *x, float *y, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

static void affine(const float *x, float *y, const float *w, const float *b, int blocks, int n,
                   int m)
{
    for (int k = 0; k < blocks; k++, x += n, y += m, w += n * m) {
        for (int j = 0; j < m; j++) {
            y[j] = b != 0 ? b[k * m + j] : 0.0f;
        }
        for (int i = 0; i < n; i++) {
            const float value = x[i], *row = w + i * m;
            for (int j = 0; j < m; j++) {
                y[j] += value * row[j];
            }
        }
    }
}

static float relu(float z)
{
    return z > 0.0f ? z : 0.0f;
}

static float silu(float z)
{
    return z / (1.0f + expf(-z));
}

static float gelu(float z)
{
    return 0.5f * z * (1.0f + erff(z * 0.70710678118654752f));
}

static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

static void activate(float *x, int n, float (*function)(float))
{
    for (int i = 0; i < n; i++) {
        x[i] = function(x[i]);
    }
}

/* Filters at every place, divided by the contrast there; means over fields of what is positive and
 * of what is negative. Fields are a grid of pool x pool, or 2 x 2 places each where pool is 0. */
static void convolve(const float *x, float *y, float *contrast, const float *w, float smallest,
                     int filters, int channels, int size, int height, int width,
                     int channels_last, int pool)
{
    const int step_c = channels_last ? 1 : height * width, step_w = channels_last ? channels : 1;
    const int step_h = width * step_w, down = height - size + 1, across = width - size + 1;
    for (int i = 0; i < down; i++) {
        for (int j = 0; j < across; j++) {
            float sum = 0.0f, squares = 0.0f;
            for (int c = 0; c < channels; c++) {
                for (int a = 0; a < size; a++) {
                    for (int b = 0; b < size; b++) {
                        const float v = x[c * step_c + (i + a) * step_h + (j + b) * step_w];
                        sum += v;
                        squares += v * v;
                    }
                }
            }
            const float n = (float)(channels * size * size), mean = sum / n;
            const float variance = squares / n - mean * mean;
            contrast[i * across + j] = 1.0f / sqrtf((variance > 0.0f ? variance : 0.0f) + smallest);
        }
    }
    const int rows = pool ? pool : down / 2, columns = pool ? pool : across / 2;
    for (int f = 0; f < filters; f++, w += channels * size * size) {
        for (int r = 0; r < rows; r++) {
            const int top = pool ? r * down / pool : 2 * r;
            const int bottom = pool ? ((r + 1) * down + pool - 1) / pool : top + 2;
            for (int q = 0; q < columns; q++) {
                const int left = pool ? q * across / pool : 2 * q;
                const int right = pool ? ((q + 1) * across + pool - 1) / pool : left + 2;
                float above = 0.0f, below = 0.0f;
                for (int i = top; i < bottom; i++) {
                    for (int j = left; j < right; j++) {
                        const float *k = w;
                        float z = 0.0f;
                        for (int c = 0; c < channels; c++) {
                            for (int a = 0; a < size; a++) {
                                for (int b = 0; b < size; b++) {
                                    z += *k++ * x[c * step_c + (i + a) * step_h + (j + b) * step_w];
                                }
                            }
                        }
                        z *= contrast[i * across + j];
                        above += z > 0.0f ? z : 0.0f;
                        below += z < 0.0f ? -z : 0.0f;
                    }
                }
                const float n = (float)((bottom - top) * (right - left));
                y[(f * rows + r) * columns + q] = above / n;
                y[((filters + f) * rows + r) * columns + q] = below / n;
            }
        }
    }
}

static void filled(float x, float *y, float middle, float centre, float unit)
{
    *y = ((x != x ? middle : x) - centre) / unit;
}

static void flag(float x, float *y)
{
    *y = x != x ? 1.0f : 0.0f;
}

/* Straight lines between the levels; the last averages are those of gaps. */
static void curve(float x, float *y, const float *levels, const float *averages, int n, int k)
{
    int i = 0;
    while (x == x && i < n && levels[i] <= x) {
        i++;
    }
    const float *above = averages + (x != x || i == n ? (x != x ? n : n - 1) : i) * k;
    const float *below = x != x || i == 0 ? above : averages + (i - 1) * k;
    const float share = below == above ? 0.0f : (x - levels[i - 1]) / (levels[i] - levels[i - 1]);
    for (int j = 0; j < k; j++) {
        y[j] = below[j] + share * (above[j] - below[j]);
    }
}

/* The vector of a category; the last but one is for any other, the last for gaps. */
static void look(float x, float *y, const float *vectors, int n, int k)
{
    const int place = x != x ? n + 1 : (x >= 0.0f && x < (float)n ? (int)x : n);
    for (int j = 0; j < k; j++) {
        y[j] = vectors[place * k + j];
    }
}

static void wave(float x, float *y, float middle, float period, float phase)
{
    float turns = phase + (x != x ? middle : x) / period;
    turns = 6.28318530717958648f * (turns - floorf(turns));
    y[0] = sinf(turns);
    y[1] = cosf(turns);
}

static void week(float x, float *y, float middle, int first)
{
    const float day = floorf(x != x ? middle : x) + (float)first;
    for (int j = 0; j < 7; j++) {
        y[j] = day - 7.0f * floorf(day / 7.0f) == (float)j ? 1.0f : 0.0f;
    }
}

/* Features that are used, as whole numbers; whatever is not a number is as small as can be. All of
 * them share one middle and one factor, or each has its own. */
static void enter(const float *x, int8_t *y, const unsigned char *used, const float *middle,
                  const float *factor, int each, int n)
{
    for (int i = 0, k = 0; i < n; i++) {
        if (used == 0 || used[i / 8] >> i % 8 & 1) {
            float z = x[i] - middle[each ? k : 0];
            z = z * factor[each ? k : 0];
            z = z > -127.0f ? z : -127.0f;
            z = z < 127.0f ? z : 127.0f;
            y[k++] = (int8_t)((int)(z + 128.5f) - 128);
        }
    }
}

/* Steps of columns as whole numbers: each has a column, and begins and ends where these do. */
static void enter_steps(const float *x, int8_t *y, const int *column, const float *middle,
                        const float *factor, int n)
{
    for (int i = 0; i < n; i++) {
        float z = x[column[i]] - middle[i];
        z = z * factor[i];
        z = z > -127.0f ? z : -127.0f;
        z = z < 127.0f ? z : 127.0f;
        y[i] = (int8_t)((int)(z + 128.5f) - 128);
    }
}

/* Bent columns, or steps of them, as whole numbers: how many starts z has reached, spread over
 * -128 to 127. All share one row of starts, or each has its own. */
static void enter_bent(const float *x, int8_t *y, const int *column, const float *centre,
                       const float *width, const float *starts, int each, int n_starts, int n)
{
    for (int i = 0; i < n; i++, starts += each ? n_starts : 0) {
        const float z = (x[column[i]] - centre[i]) / width[i];
        int below = 0, above = n_starts;
        while (below < above) {
            const int half = (below + above) / 2;
            if (z >= starts[half]) {
                below = half + 1;
            } else {
                above = half;
            }
        }
        y[i] = (int8_t)(255 / n_starts * below - 128);
    }
}

/* sum * multiplier / 2^shift, rounded half up. */
static int64_t scaled(int32_t sum, int32_t multiplier, int32_t shift)
{
    const int64_t v = (int64_t)sum * multiplier + ((int64_t)1 << (shift - 1));
    const int64_t rest = ((int64_t)1 << shift) - 1;
    return v >= 0 ? v >> shift : -((-v + rest) >> shift);
}

static int32_t sum_of(const int8_t *x, const int8_t *w, int n, int32_t sum)
{
    for (int i = 0; i < n; i++) {
        sum += x[i] * w[i];
    }
    return sum;
}

static void layer(const int8_t *x, int8_t *y, const int8_t *w, const int32_t *bias,
                  const int32_t *multiplier, const unsigned char *shifts, int blocks, int n, int m,
                  int zero, int lowest, const int8_t *table)
{
    for (int k = 0; k < blocks; k++, x += n, y += m) {
        for (int j = 0; j < m; j++, w += n) {
            const int u = k * m + j;
            int64_t z = scaled(sum_of(x, w, n, bias[u]), multiplier[u], shifts[u]) + zero;
            z = z < lowest ? lowest : (z > 127 ? 127 : z);
            y[j] = table != 0 ? table[z + 128] : (int8_t)z;
        }
    }
}

static void last_layer(const int8_t *x, int32_t *y, const int8_t *w, const int32_t *bias,
                       const int32_t *multiplier, const unsigned char *shifts, int n, int m,
                       int adds)
{
    for (int j = 0; j < m; j++, w += n) {
        int64_t z = scaled(sum_of(x, w, n, bias[j]), multiplier[j], shifts[j]);
        z += adds ? y[j] : 0;
        y[j] = (int32_t)(z > 2147483647 ? 2147483647 : (z < -2147483647 ? -2147483647 : z));
    }
}
