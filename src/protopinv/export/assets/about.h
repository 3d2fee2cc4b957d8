/* {{ about|map("comment")|join("\n * ") }}
 * {{ constant_bytes }} bytes of constants, {{ static_bytes }} bytes of static buffers; no other memory but a small stack.
 * One thread at a time may call it. See {{ stem }}.h.
 */
