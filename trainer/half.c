/*
 * The 16-bit types of the files, to and from fp32. bf16 is the upper half of an fp32; f16 is IEEE
 * binary16. Narrowing rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
 */
#include "trainer/safetensors.h"

#include "base/base.h"

static uint32_t bits_of(float value)
{
    uint32_t u;

    memcpy(&u, &value, sizeof(u));
    return u;
}

static float float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

void tr_f32_to_bf16(uint16_t *ret, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t u = bits_of(in[i]);

        if ((u & 0x7fffffffu) > 0x7f800000u)
            ret[i] = (uint16_t)(u >> 16 | 0x40u);
        else
            ret[i] = (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
    }
}

void tr_bf16_to_f32(float *ret, const uint16_t *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ret[i] = float_of((uint32_t)in[i] << 16);
}

static float one_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu, mantissa = half & 0x3ffu;
    float small;

    if (exponent == 31)
        return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return float_of(sign | (exponent + 112u) << 23 | mantissa << 13);
    small = (float)mantissa * 0x1p-24f; /* subnormal: exact in fp32 */
    return sign ? -small : small;
}

void tr_f16_to_f32(float *ret, const uint16_t *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ret[i] = one_f16_to_f32(in[i]);
}

static uint16_t one_f32_to_f16(float value)
{
    uint32_t u = bits_of(value), a = u & 0x7fffffffu;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);

    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a <
        0x38800000u) { /* below 2^-14: the addition rounds at 2^-24, the spacing of subnormals */
        float magic = float_of(a) + 0.5f;

        return (uint16_t)(sign | (uint16_t)(bits_of(magic) - bits_of(0.5f)));
    }
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | (uint16_t)((a - 0x38000000u) >> 13));
}

void tr_f32_to_f16(uint16_t *ret, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ret[i] = one_f32_to_f16(in[i]);
}
