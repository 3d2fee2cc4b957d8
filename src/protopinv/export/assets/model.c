{% include "about.h" %}
#include "{{ stem }}.h"

#include <math.h>

{{ arrays }}

{{ functions }}

{% if is_int8 %}
void {{ name }}_whole(const float *x, int32_t *outputs)
{
{{ calls }}
}

void {{ name }}_outputs(const float *x, float *outputs)
{
    int32_t whole[{{ k }}];
    {{ name }}_whole(x, whole);
    for (int j = 0; j < {{ k }}; j++) {
        outputs[j] = (float)whole[j] * scale[{{ "j" if n_scales > 1 else 0 }}];
    }
}
{% else %}
void {{ name }}_outputs(const float *x, float *outputs)
{
{{ calls }}
}
{% endif %}

{% if task == "classification" %}
const char *const {{ name }}_names[{{ k }}] = {
{{ labels|map("c_string")|join(",\n")|indent(4, first=true) }}
};

int {{ name }}_predict(const float *x)
{
    {{ "int32_t" if is_int8 else "float" }} outputs[{{ k }}];
    int best = 0;
    {{ name }}_{{ "whole" if is_int8 else "outputs" }}(x, outputs);
    for (int i = 1; i < {{ k }}; i++) {
        if (outputs[i] > outputs[best]) {
            best = i;
        }
    }
    return best;
}

int {{ name }}_probabilities(const float *x, float *probabilities)
{
    int best = 0;
    float sum = 0.0f, top;
    {{ name }}_outputs(x, probabilities);
    for (int i = 1; i < {{ k }}; i++) {
        if (probabilities[i] > probabilities[best]) {
            best = i;
        }
    }
    top = probabilities[best];
    for (int i = 0; i < {{ k }}; i++) {
        probabilities[i] = expf(probabilities[i] - top);
        sum += probabilities[i];
    }
    for (int i = 0; i < {{ k }}; i++) {
        probabilities[i] /= sum;
    }
    return best;
}
{% elif task == "multi-label" %}
void {{ name }}_predict(const float *x, unsigned char *labels)
{
    {{ "int32_t" if is_int8 else "float" }} outputs[{{ k }}];
    {{ name }}_{{ "whole" if is_int8 else "outputs" }}(x, outputs);
    for (int i = 0; i < {{ k }}; i++) {
        labels[i] = outputs[i] > 0;
    }
}

void {{ name }}_probabilities(const float *x, float *probabilities)
{
    {{ name }}_outputs(x, probabilities);
    for (int i = 0; i < {{ k }}; i++) {
        probabilities[i] = 1.0f / (1.0f + expf(-probabilities[i]));
    }
}
{% else %}
void {{ name }}_predict(const float *x, float *numbers)
{
    {{ name }}_outputs(x, numbers);
{% if is_bounded %}
    for (int i = 0; i < {{ k }}; i++) {
        numbers[i] = numbers[i] < low[i] ? low[i] : numbers[i];
        numbers[i] = numbers[i] > high[i] ? high[i] : numbers[i];
    }
{% endif %}
}
{% endif %}
{% if categories %}

{% for column, values in categories.items() %}
static const char *const values_{{ column }}[{{ values|length }}] = {
{{ values|map("c_string")|join(",\n")|indent(4, first=true) }}
};
{% endfor %}

float {{ name }}_code(int column, const char *text)
{
    const char *const *values = 0;
    int n = 0;
    switch (column) {
{% for column, values in categories.items() %}
    case {{ column }}:
        values = values_{{ column }};
        n = {{ values|length }};
        break;
{% endfor %}
    default:
        break;
    }
    for (int i = 0; i < n; i++) {
        const char *a = values[i], *b = text;
        while (*a != 0 && *a == *b) {
            a++;
            b++;
        }
        if (*a == *b) {
            return (float)i;
        }
    }
    return -1.0f;
}
{% endif %}
