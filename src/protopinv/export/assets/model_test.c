/* Stored cases: cc -std=c99 {{ stem }}.c {{ stem }}_test.c -lm && ./a.out */
#include "{{ stem }}.h"

#include <math.h>
#include <stdio.h>

static const float rows[{{ cases|length }}][{{ n }}] = {
{% for row in cases %}
    {
{{ row|c_numbers }}
    }{{ "," if not loop.last }}
{% endfor %}
};
static const float expected[{{ cases|length }}][{{ k }}] = {
{% for outputs in expected %}
    {
{{ outputs|c_numbers }}
    }{{ "," if not loop.last }}
{% endfor %}
};
static const float allowed[{{ k }}] = {
{{ allowed|c_numbers }}
};

int main(void)
{
    float worst = 0.0f;
    for (int i = 0; i < {{ n_cases }}; i++) {
        float outputs[{{ k }}];
        {{ name }}_outputs(rows[i], outputs);
        for (int j = 0; j < {{ k }}; j++) {
            const float off = fabsf(outputs[j] - expected[i][j]);
            if (!(off <= allowed[j])) {
                printf("case %d, output %d: %g instead of %g\n", i, j, (double)outputs[j],
                       (double)expected[i][j]);
                return 1;
            }
            worst = off > worst ? off : worst;
        }
    }
    printf("{{ n_cases }} cases, largest difference %g\n", (double)worst);
    return 0;
}
