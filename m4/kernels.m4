# Flags for the instruction sets of kernels/, where the compiler makes code for x86-64; empty elsewhere,
# and those levels of the table then add nothing to the reference.
AC_DEFUN([PT_KERNELS], [
  AC_CACHE_CHECK([whether $CC makes AVX-512 code], [pt_cv_avx512], [
    pt_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
        [[__m512 x = _mm512_setzero_ps(); x = _mm512_fmadd_ps(x, x, x); (void)x;]])],
      [pt_cv_avx512=yes], [pt_cv_avx512=no])
    CFLAGS=$pt_save_CFLAGS])
  AS_IF([test "$pt_cv_avx512" = yes], [
    KN_AVX2_CFLAGS="-mavx2 -mfma"
    KN_AVX512_CFLAGS="-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512"])
  AC_SUBST([KN_AVX2_CFLAGS])
  AC_SUBST([KN_AVX512_CFLAGS])
])
