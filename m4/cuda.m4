# Whether CXX serves for the kernels of kernels/cuda/ on the host (their tests) and as nvcc's. Nothing else needs it.
AC_DEFUN([PT_CXX], [
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

# --with-cuda[=DIR]: build the CUDA backend, a library that partune-train opens when it is asked for. Its compilation takes
# minutes, so it must be asked for.
AC_DEFUN([PT_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
      [build the CUDA backend with the toolkit, 12.8 or later, in DIR (default: nvcc of the PATH, or /usr/local/cuda)])],
      [], [with_cuda=no])
  AS_CASE([$with_cuda],
    [no], [],
    [yes], [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
  AS_IF([test "$with_cuda" != no], [
    AS_IF([test -z "$NVCC"], [AC_MSG_ERROR([no nvcc was found: give the toolkit as --with-cuda=DIR, or leave the option out])])
    AS_IF([test "$pt_cv_cxx" != yes], [AC_MSG_ERROR([nvcc needs a C++ compiler: install g++])])
    CU_ARCHS="-gencode=arch=compute_80,code=@<:@sm_80,compute_80@:>@ -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_100,code=sm_100"
    AC_MSG_CHECKING([whether $NVCC makes code for sm_80, sm_90a and sm_100])
    echo '__global__ void empty() {}' >conftest.cu
    AS_IF([$NVCC -std=c++20 $CU_ARCHS -c conftest.cu -o conftest.o >conftest.log 2>&1],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([$NVCC does not compile for these GPUs, toolkit 12.8 and later do: $(head -n 3 conftest.log)])])
    rm -f conftest.cu conftest.o conftest.log
    CU_HOME=$(dirname "$(dirname "$NVCC")")
    AS_IF([test "$enable_werror" = yes], [CU_NVCC_WERROR="--Werror=all-warnings"])])
  AC_SUBST([CU_ARCHS])
  AC_SUBST([CU_HOME])
  AC_SUBST([CU_NVCC_WERROR])
  AM_CONDITIONAL([HAVE_CUDA], [test "$with_cuda" != no])
])
