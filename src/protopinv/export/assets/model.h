{% include "about.h" %}
#ifndef {{ name|upper }}_H
#define {{ name|upper }}_H

#define {{ name|upper }}_INPUTS {{ n }}
#define {{ name|upper }}_OUTPUTS {{ k }}

{% if is_int8 %}
#include <stdint.h>

{% endif %}
#ifdef __cplusplus
extern "C" {
#endif

{% if columns %}
/* A row{{ ", with NAN for what is missing" if is_frame }}:
{% for column, kind in columns %}
 *   x[{{ loop.index0 }}] {{ column|comment }}{{ kind }}
{% endfor %}
 */
{% endif %}
{% if categories %}

/* The code of a category in UTF-8; -1 for one that was not there in training. */
float {{ name }}_code(int column, const char *text);

{% endif %}
{% if is_int8 %}
/* Outputs as whole numbers, all in one scale. */
void {{ name }}_whole(const float *x, int32_t *outputs);

{% endif %}
/* What the network answers to a row: before labels, probabilities and bounds. */
void {{ name }}_outputs(const float *x, float *outputs);

{% if task == "classification" %}
/* Names of the classes, in UTF-8. */
extern const char *const {{ name }}_names[{{ name|upper }}_OUTPUTS];

/* The number of the most likely class of a row. */
int {{ name }}_predict(const float *x);

/* The same, and the probability of every class. */
int {{ name }}_probabilities(const float *x, float *probabilities);
{% elif task == "multi-label" %}
/* For each label 1 if it is there, else 0. */
void {{ name }}_predict(const float *x, unsigned char *labels);

/* The probability of each label. */
void {{ name }}_probabilities(const float *x, float *probabilities);
{% else %}
/* The numbers of a row{{ ", kept near those it was trained on" if is_bounded }}. */
void {{ name }}_predict(const float *x, float *numbers);
{% endif %}

#ifdef __cplusplus
}
#endif

#endif
