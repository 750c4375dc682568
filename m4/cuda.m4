# A C++ compiler, for the kernels of kernels/cuda/ on the host (their tests) and as nvcc's. Nothing else needs it.
AC_DEFUN([PT_CXX], [
  AS_CASE([$CC], [*clang*], [AC_PROG_CXX([clang++ g++ c++])], [AC_PROG_CXX([g++ c++ clang++])])
  AC_LANG_PUSH([C++])
  pt_save_CXXFLAGS=$CXXFLAGS
  CU_CXXFLAGS="-std=gnu++20 -Wall -Wextra -Wno-missing-field-initializers"
  AS_IF([test "$enable_werror" = yes], [CU_CXXFLAGS="$CU_CXXFLAGS -Werror"])
  CXXFLAGS="$CXXFLAGS $CU_CXXFLAGS $SAN_CFLAGS"
  AC_CACHE_CHECK([whether $CXX compiles C++20], [pt_cv_cxx], [
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <ucontext.h>
        template <typename F> static int call(F f) { return f(1); }]],
        [[return call([](auto x) { typedef decltype(x) T; return T(x); }) - 1;]])],
      [pt_cv_cxx=yes], [pt_cv_cxx=no])])
  CXXFLAGS="$pt_save_CXXFLAGS -fsanitize=address"
  AC_CACHE_CHECK([whether $CXX has an address sanitizer], [pt_cv_cxx_asan], [
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <sanitizer/common_interface_defs.h>]], [[]])],
      [pt_cv_cxx_asan=yes], [pt_cv_cxx_asan=no])])
  CXXFLAGS=$pt_save_CXXFLAGS
  AC_LANG_POP([C++])
  AC_SUBST([CU_CXXFLAGS])
  dnl Fibers are more than the thread sanitizer follows; another sanitizer does not mix with the address sanitizer's program.
  AS_CASE([$enable_sanitize], [*thread*], [pt_cv_cxx=no], [no], [], [pt_cv_cxx_asan=no])
  AM_CONDITIONAL([HAVE_CXX], [test "$pt_cv_cxx" = yes])
  AM_CONDITIONAL([HAVE_CXX_ASAN], [test "$pt_cv_cxx" = yes && test "$pt_cv_cxx_asan" = yes])
])
