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

# PT_MODULE(VARIABLE, MODULE [>= VERSION], [FOUND], [NOT-FOUND]) and PT_HEADER(NAME, [FOUND], [NOT-FOUND]) ask for a library
# as PKG_CHECK_MODULES and AC_CHECK_HEADER do, and note the question for PT_ANSWERS.
AC_DEFUN([PT_MODULE], [
  PT_QUESTIONS="$PT_QUESTIONS m4_bpatsubst([$2], [ .*])"
  PKG_CHECK_MODULES([$1], [$2], [$3], [$4])
])
AC_DEFUN([PT_HEADER], [
  PT_QUESTIONS="$PT_QUESTIONS $1"
  AC_CHECK_HEADER([$1], [$2], [$3])
])

# Keep the answers in configure.answers. make asks again whenever it starts (a rule of Makefile.am) and runs configure where
# they differ, so that a library which is installed, replaced or removed later counts at once.
# The file changes only with its content: objects that depend on an answer are not compiled again for nothing.
AC_DEFUN([PT_ANSWERS], [
  AC_SUBST([PT_QUESTIONS])
  PKG_CONFIG="$PKG_CONFIG" CC="$CC" CPPFLAGS="$CPPFLAGS" $SHELL "$srcdir/m4/answers.sh" configure.answers $PT_QUESTIONS
])
