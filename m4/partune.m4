# The warning list that the tree builds clean with, under gcc and clang alike.
AC_DEFUN([PT_WARNINGS], [
  WARN_CFLAGS="-Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wpointer-arith -Wwrite-strings -Wundef -Wvla -Wformat=2"
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors])], [],
                [enable_werror=no])
  AS_IF([test "$enable_werror" = yes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS])
])

# --enable-sanitize=LIST passes the compiler's own spelling through: address,undefined or thread.
AC_DEFUN([PT_SANITIZE], [
  AC_ARG_ENABLE([sanitize], [AS_HELP_STRING([--enable-sanitize=LIST], [build with -fsanitize=LIST])], [],
                [enable_sanitize=no])
  AS_IF([test "$enable_sanitize" != no],
        [SAN_CFLAGS="-fsanitize=$enable_sanitize -fno-omit-frame-pointer -fno-sanitize-recover=undefined"])
  AC_SUBST([SAN_CFLAGS])
])

# --enable-fuzz builds the fuzz targets against libFuzzer (clang); otherwise they replay their corpora.
AC_DEFUN([PT_FUZZ], [
  AC_ARG_ENABLE([fuzz], [AS_HELP_STRING([--enable-fuzz], [build libFuzzer targets (needs clang)])], [],
                [enable_fuzz=no])
  AS_IF([test "$enable_fuzz" = yes], [FUZZ_CFLAGS="-fsanitize=fuzzer"])
  AC_SUBST([FUZZ_CFLAGS])
  AM_CONDITIONAL([FUZZ], [test "$enable_fuzz" = yes])
])
