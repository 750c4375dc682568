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

# The same sources make the same bytes in whatever folder they are and are built in: what a compiler writes down of paths
# begins at the top of the tree. MAP_CFLAGS is for make; it is empty where the compiler has no such flag (gcc before 8).
# And make dist: the archive's entries are sorted, are nobody's, and have one time, SOURCE_DATE_EPOCH, else (Makefile.am) that
# of the sources. AM_INIT_AUTOMAKE sets am__tar before.
AC_DEFUN([PT_REPRODUCIBLE], [
  AC_CACHE_CHECK([whether $CC maps paths], [pt_cv_map], [
    pt_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -ffile-prefix-map=/nowhere=."
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [pt_cv_map=yes], [pt_cv_map=no])
    CFLAGS=$pt_save_CFLAGS])
  AS_IF([test "$pt_cv_map" = yes],
        [MAP_CFLAGS="'-ffile-prefix-map=\$(top_srcdir)/=' '-ffile-prefix-map=\$(abs_top_builddir)=.'"])
  AC_SUBST([MAP_CFLAGS])
  AC_MSG_CHECKING([whether tar sorts])
  AS_IF([tar --sort=name -cf /dev/null "$srcdir/configure.ac" 2>/dev/null],
        [AC_MSG_RESULT([yes])
         am__tar='$${TAR-tar} --sort=name --mtime=@$(DIST_EPOCH) --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --format=gnu -chf - "$$tardir"'],
        [AC_MSG_RESULT([no; the archive of make dist is not reproducible])])
])

# --enable-fuzz builds the fuzz targets against libFuzzer (clang); otherwise they replay their corpora.
AC_DEFUN([PT_FUZZ], [
  AC_ARG_ENABLE([fuzz], [AS_HELP_STRING([--enable-fuzz], [build libFuzzer targets (needs clang)])], [],
                [enable_fuzz=no])
  AS_IF([test "$enable_fuzz" = yes], [FUZZ_CFLAGS="-fsanitize=fuzzer"])
  AC_SUBST([FUZZ_CFLAGS])
  AM_CONDITIONAL([FUZZ], [test "$enable_fuzz" = yes])
])

# PT_MODULE, PT_OPTIONAL and PT_HEADER ask for a library as PKG_CHECK_MODULES and AC_CHECK_HEADER do, and note the question for
# PT_ANSWERS. NAME is VARIABLE in small letters:
#
#   --with-NAME=DIR  a prefix that comes before all others. DIR's module of pkg-config counts; where it has none, DIR/include
#                    and LIBS in DIR/lib. A program must link with it. Programs find what lies there when they run, too, and
#                    so do its libraries, which a newer tag (DT_RUNPATH) would not let look there for each other.
#   --with-NAME      the library must be there
#   --without-NAME   it is not asked for, even where it is installed; an error where partune needs it
#
# Each library has its line in PT_SUMMARY.
#
# PT_MODULE(VARIABLE, MODULE [>= VERSION], [LIBS = -lMODULE], [NOT-FOUND]): a library that partune needs.
AC_DEFUN([PT_MODULE], [
  PT_LIBRARY([$1], [$2], [$3], [], [m4_default([$4],
      [AC_MSG_ERROR([$2 was not found: install its development package, or name its prefix by --with-]m4_tolower([$1])[=DIR])])],
    [AC_MSG_ERROR([--without-]m4_tolower([$1])[: partune needs $2])],
    [prefix in which the library is installed])
])
# PT_OPTIONAL(VARIABLE, MODULE [>= VERSION], [LIBS = -lMODULE], [NOT-FOUND], [WITHOUT]): sets have_NAME to yes or no, which
# NOT-FOUND may change. WITHOUT is for NOT-FOUND and --without-NAME.
AC_DEFUN([PT_OPTIONAL], [
  m4_pushdef([pt_name], [m4_tolower([$1])])
  PT_LIBRARY([$1], [$2], [$3], [have_[]pt_name=yes], [have_[]pt_name=no
    $4
    $5
    AS_IF([test "$have_[]pt_name" = no], [PT_ASKED([$1], [$2 was not found])])], [have_[]pt_name=no
    $5],
    [the library must be there, in the prefix DIR; --without-]m4_tolower([$1])[ leaves it out])
  m4_popdef([pt_name])
])
# PT_ASKED(VARIABLE, WHY): an error where --with-NAME or --with-NAME=DIR asks for a library that cannot be used.
AC_DEFUN([PT_ASKED], [
  AS_CASE([$with_[]m4_tolower([$1])], [""|no], [],
    [yes], [AC_MSG_ERROR([--with-]m4_tolower([$1])[: $2: install its development package, or name its prefix by --with-]m4_tolower([$1])[=DIR])],
    [AC_MSG_ERROR([--with-]m4_tolower([$1])[: $2 in $with_]m4_tolower([$1]))])
])
# PT_LIBRARY(VARIABLE, MODULE [>= VERSION], LIBS, FOUND, NOT-FOUND, WITHOUT, HELP)
AC_DEFUN([PT_LIBRARY], [
  m4_pushdef([pt_name], [m4_tolower([$1])])
  m4_pushdef([pt_module], [m4_bpatsubst([$2], [ .*])])
  AC_ARG_WITH(pt_name, [AS_HELP_STRING([--with-]m4_tolower([$1])[@<:@=DIR@:>@], [$2: $7])])
  pt_where=pkg-config pt_rpath=
  AS_CASE([$with_]pt_name, [""|yes|no], [], [PT_PREFIX([$1], pt_name, pt_module, m4_default([$3], [-l]pt_module), [$with_]pt_name)])
  AS_IF([test "$with_[]pt_name" = no], [
    pt_version=no pt_where=--without-[]pt_name
    $6], [
    PT_QUESTIONS="$PT_QUESTIONS pt_module"
    PKG_CHECK_MODULES([$1], [$2], [
      pt_version=`$PKG_CONFIG --modversion pt_module 2>/dev/null` || pt_version=found
      $1_LIBS="$$1_LIBS$pt_rpath"
      AS_IF([test -n "$pt_rpath"], [PT_LINKS(pt_name, [$1], [$2], PT_PROBE_$1)])
      $4], [
      pt_version=missing pt_where=
      $5])])
  pt_summary="$pt_summary
  `printf '%-16s %-10s' pt_module "$pt_version"` $pt_where"
  m4_popdef([pt_module])m4_popdef([pt_name])
])
# Without OpenBLAS any LAPACK serves: the one that LAPACK_LIBS names, that the compiler links by itself (Cray's libsci),
# FlexiBLAS, MKL, or the reference.
AC_DEFUN([PT_OTHER_LAPACK], [
  AC_MSG_CHECKING([for another LAPACK])
  pt_save_LIBS=$LIBS pt_lapack=no
  for pt_libs in "$LAPACK_LIBS" "" "-lflexiblas" "-lmkl_rt" "-llapack -lblas"; do
    LIBS="$pt_libs $pt_save_LIBS"
    AS_IF([test "$pt_lapack" = no],
          [AC_LINK_IFELSE([AC_LANG_PROGRAM([[int dpotri_(), dsyev_(), dtrsm_();]], [[return dpotri_() + dsyev_() + dtrsm_();]])],
                          [pt_lapack=${pt_libs:-"the compiler's"} LAPACK_LIBS=$pt_libs])])
  done
  LIBS=$pt_save_LIBS
  AC_MSG_RESULT([$pt_lapack])
  AS_IF([test "$pt_lapack" = no],
        [AC_MSG_ERROR([no LAPACK was found: install OpenBLAS's development package, name its prefix by --with-lapack=DIR, or link another by LAPACK_LIBS='-L... -l...'])])
  pt_version=no pt_where="another LAPACK: $pt_lapack"
])
# PT_PREFIX(VARIABLE, NAME, MODULE, LIBS, DIR): look there for it.
AC_DEFUN([PT_PREFIX], [
  AS_IF([test ! -d "$5"], [AC_MSG_ERROR([--with-$2: $5 is not a directory])])
  pt_where=`cd "$5" && pwd`
  AS_CASE([$pt_where], [*[[[:space:]]]*], [AC_MSG_ERROR([--with-$2: $pt_where has a blank in it, where make's rules would split it])])
  pt_pc= pt_lib=
  for pt_dir in "$pt_where/lib" "$pt_where/lib64" "$pt_where"/lib/*-linux-*; do
    AS_IF([test -z "$pt_pc" && test -f "$pt_dir/pkgconfig/$3.pc"], [pt_pc=$pt_dir/pkgconfig pt_lib=$pt_dir])
  done
  AS_IF([test -n "$pt_pc"],
        [PKG_CONFIG_PATH=$pt_pc${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
         export PKG_CONFIG_PATH],
        [pt_word=`echo "$4" | sed 's/^-l//; s/ .*//'`
         for pt_dir in "$pt_where/lib" "$pt_where/lib64" "$pt_where"/lib/*-linux-*; do
           AS_IF([test -z "$pt_lib" && { test -e "$pt_dir/lib$pt_word.so" || test -e "$pt_dir/lib$pt_word.a"; }],
                 [pt_lib=$pt_dir])
         done
         AS_IF([test -z "$pt_lib"],
               [AC_MSG_ERROR([--with-$2: $pt_where has neither $3.pc for pkg-config nor lib$pt_word in lib or lib64])])
         $1_CFLAGS=-I$pt_where/include
         $1_LIBS="-L$pt_lib $4"])
  pt_rpath=" -Wl,--disable-new-dtags -Wl,-rpath,$pt_lib"
])
# PT_PROBE_VARIABLE: declarations, a function of the library, and the condition that it is new enough.
m4_define([PT_PROBE_JANSSON],  [[@%:@include <jansson.h>], [json_null], [JANSSON_VERSION_HEX >= 0x020d00]])
m4_define([PT_PROBE_UV],       [[@%:@include <uv.h>], [uv_loop_init], [UV_VERSION_HEX >= 0x012800]])
m4_define([PT_PROBE_CURL],     [[@%:@include <curl/curl.h>], [curl_easy_init], [LIBCURL_VERSION_NUM >= 0x074a00]])
m4_define([PT_PROBE_SQLITE],   [[@%:@include <sqlite3.h>], [sqlite3_open_v2], [SQLITE_VERSION_NUMBER >= 3026000]])
m4_define([PT_PROBE_MHD],      [[@%:@include <microhttpd.h>], [MHD_start_daemon], [MHD_VERSION >= 0x00097200]])
m4_define([PT_PROBE_ZLIB],     [[@%:@include <zlib.h>], [deflate], [1]])
m4_define([PT_PROBE_NETTLE],   [[@%:@include <nettle/sha2.h>], [nettle_sha256_init], [1]])
m4_define([PT_PROBE_LAPACK],   [[int dpotri_(void);], [dpotri_], [1]])
m4_define([PT_PROBE_CMOCKA],   [[@%:@include <cmocka.h>], [_cmocka_run_group_tests], [1]])
m4_define([PT_PROBE_DNNL],     [[@%:@include <dnnl.h>], [dnnl_engine_create], [1]])
m4_define([PT_PROBE_PCRE2],    [[@%:@include <pcre2.h>], [pcre2_compile], [PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40]])
m4_define([PT_PROBE_UTF8PROC], [[@%:@include <utf8proc.h>], [utf8proc_map], [1]])
m4_define([PT_PROBE_MPICH],    [[@%:@include <mpi.h>], [MPI_Iallreduce], [MPICH_NUMVERSION >= 40000000]])
m4_define([PT_PROBE_OPENMPI],  [[@%:@include <mpi.h>], [MPI_Iallreduce], [OMPI_MAJOR_VERSION >= 4]])
dnl In C++, whose compiler comes later: it is linked with, no more.
m4_define([PT_PROBE_SENTENCEPIECE], [[], [main], [1]])
# PT_LINKS(NAME, VARIABLE, MODULE [>= VERSION], DECLARATIONS, FUNCTION, NEW-ENOUGH): an error that names --with-NAME=DIR where
# a program with that library does not compile, it is too old, or the program does not link. $3 is what the error calls it.
AC_DEFUN([PT_LINKS], [
  AC_MSG_CHECKING([whether a program links with $1 of $pt_where])
  pt_save_CPPFLAGS=$CPPFLAGS pt_save_LIBS=$LIBS pt_fault=
  CPPFLAGS="$CPPFLAGS $$2_CFLAGS" LIBS="$$2_LIBS $LIBS"
  PT_TRY([COMPILE], [$4], [], [pt_fault="its headers are missing, or do not compile with $$2_CFLAGS"])
  PT_TRY([COMPILE], [$4], [static char enough@<:@($6) ? 1 : -1@:>@; (void)enough;], [pt_fault="$3 is needed"])
  PT_TRY([LINK], [$4], [void *volatile function = (void *)&$5; return !function;],
         [pt_fault="a program does not link with $$2_LIBS"])
  CPPFLAGS=$pt_save_CPPFLAGS LIBS=$pt_save_LIBS
  AS_IF([test -n "$pt_fault"], [
    AC_MSG_RESULT([no])
    AC_MSG_ERROR([--with-$1: $3 in $pt_where: $pt_fault (the compiler's words are in config.log)])])
  AC_MSG_RESULT([yes])
])
# PT_TRY(COMPILE or LINK, DECLARATIONS, BODY, FAULT): FAULT where that fails and nothing failed before. What cmocka and PCRE2
# want before their headers is there for all.
AC_DEFUN([PT_TRY], [
  AS_IF([test -z "$pt_fault"], [AC_$1_IFELSE([AC_LANG_PROGRAM([@%:@define PCRE2_CODE_UNIT_WIDTH 8
@%:@include <setjmp.h>
@%:@include <stdarg.h>
@%:@include <stddef.h>
@%:@include <stdint.h>
$2], [$3])], [], [$4])])
])
# PT_MPI: the trainer's MPI, as MPI_CFLAGS and MPI_LIBS: MPICC's, where it is given; else Open MPI's module of pkg-config
# where --with-openmpi asks for it or MPICH is missing; else MPICH's. HAVE_OPENMPI: the tests build the trainer with Open MPI
# a second time. MPIEXEC: what starts the trainer's ranks in tests; on Debian the name mpiexec is Open MPI's where both are.
AC_DEFUN([PT_MPI], [
  AS_CASE([$with_mpi], [yes], [], [AC_MSG_ERROR([--with-mpi=$with_mpi: name the prefix by --with-mpich=DIR or --with-openmpi=DIR, or the compiler wrapper of any MPI by MPICC=PROGRAM])])
  AC_ARG_VAR([MPICC], [compiler wrapper of the trainer's MPI, asked for its flags (default: MPICH's module of pkg-config, else Open MPI's)])
  PT_OPTIONAL([MPICH], [mpich >= 4], [-lmpi])
  PT_OPTIONAL([OPENMPI], [ompi-c >= 4], [-lmpi])
  AS_CASE([$MPICC,$with_openmpi,$have_mpich,$have_openmpi],
    [?*,*,*,*], [PT_MPI_WRAPPER],
    [,,yes,*|,no,yes,*], [MPI_CFLAGS=$MPICH_CFLAGS MPI_LIBS=$MPICH_LIBS],
    [,*,*,yes], [MPI_CFLAGS=$OPENMPI_CFLAGS MPI_LIBS=$OPENMPI_LIBS],
    [AC_MSG_ERROR([neither MPICH 4 nor Open MPI 4 was found: install libmpich-dev or libopenmpi-dev, name the prefix by --with-mpich=DIR or --with-openmpi=DIR, or the compiler wrapper of another MPI by MPICC=PROGRAM; or build without the trainer by --without-mpi])])
  AC_SUBST([MPI_CFLAGS])
  AC_SUBST([MPI_LIBS])
  PT_MPI_NAME
  AS_CASE([$pt_mpi], ["Open MPI"*], [have_openmpi=no pt_mpiexec=mpiexec.openmpi],
                     [MPICH*], [pt_mpiexec="mpiexec.mpich mpiexec.hydra"], [pt_mpiexec=])
  AC_PATH_PROGS([MPIEXEC], [$pt_mpiexec mpiexec])
])
# PT_NO_MPI: --without-mpi and a question for an MPI contradict each other.
AC_DEFUN([PT_NO_MPI], [
  AS_CASE([$with_mpich], [""|no], [], [AC_MSG_ERROR([--with-mpich: --without-mpi leaves out the trainer, which alone uses it])])
  AS_CASE([$with_openmpi], [""|no], [], [AC_MSG_ERROR([--with-openmpi: --without-mpi leaves out the trainer, which alone uses it])])
])
# MPI_CFLAGS and MPI_LIBS from MPICC, by Open MPI's option or, as MPICH and its relatives say it, by -show.
AC_DEFUN([PT_MPI_WRAPPER], [
  AS_IF([pt_flags=`$MPICC --showme:compile 2>/dev/null` && pt_flags="$pt_flags "`$MPICC --showme:link 2>/dev/null`], [],
        [pt_flags=`$MPICC -show 2>/dev/null`], [],
        [AC_MSG_ERROR([MPICC=$MPICC does not print its flags, neither by --showme:compile (Open MPI) nor by -show (MPICH and its relatives)])])
  pt_next=
  eval "set x $pt_flags"
  shift
  for pt_word; do
    AS_CASE([$pt_next$pt_word],
      [-Xlinker*], [MPI_LIBS="$MPI_LIBS $pt_word"],
      [-isystem*], [MPI_CFLAGS="$MPI_CFLAGS $pt_word"],
      [-[[ID]]*], [MPI_CFLAGS="$MPI_CFLAGS $pt_word"],
      [-[[Ll]]*|-Wl,*|-pthread|/*.a|/*.so], [MPI_LIBS="$MPI_LIBS $pt_word"])
    AS_CASE([$pt_next$pt_word], [-Xlinker|-isystem], [pt_next=$pt_word], [pt_next=])
  done
])
# Which MPI that is, for PT_SUMMARY, and whether it has what the trainer calls.
AC_DEFUN([PT_MPI_NAME], [
  AC_MSG_CHECKING([which MPI the trainer gets])
  pt_save_CPPFLAGS=$CPPFLAGS pt_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $MPI_CFLAGS" LIBS="$MPI_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Request r; int n = 1, m;
      return MPI_Iallreduce(&n, &m, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r);]])], [],
    [AC_MSG_ERROR([a program does not link with $MPI_CFLAGS $MPI_LIBS, or this MPI has no MPI_Iallreduce (MPI 3)])])
  AC_LANG_CONFTEST([AC_LANG_SOURCE([[#include <mpi.h>
#if defined OMPI_MAJOR_VERSION
pt_mpi "Open MPI" OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
#elif defined I_MPI_VERSION
pt_mpi "Intel MPI" I_MPI_VERSION
#elif defined MVAPICH_VERSION
pt_mpi "MVAPICH" MVAPICH_VERSION
#elif defined MVAPICH2_VERSION
pt_mpi "MVAPICH2" MVAPICH2_VERSION
#elif defined CRAY_MPICH_VERSION
pt_mpi "Cray MPICH" CRAY_MPICH_VERSION
#elif defined MPICH_VERSION
pt_mpi "MPICH" MPICH_VERSION
#else
pt_mpi "an MPI of version" MPI_VERSION
#endif]])])
  pt_mpi=`$CC $CPPFLAGS -E conftest.$ac_ext | sed -n 's/^pt_mpi //p' | tr -d '"' | sed 's/ *\. */./g'`
  CPPFLAGS=$pt_save_CPPFLAGS LIBS=$pt_save_LIBS
  AC_MSG_RESULT([$pt_mpi])
])
# What was found where, at the end of configure.
AC_DEFUN([PT_SUMMARY], [
  AS_IF([test "$with_mpi" != no], [pt_trainer="with $pt_mpi${MPICC:+ ($MPICC)}"], [pt_trainer="no (--without-mpi)"])
  AS_ECHO(["
partune $PACKAGE_VERSION, to be installed in $prefix
$pt_summary
  `printf '%-27s' 'bundled trainer'` $pt_trainer"])
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
# PT_DEPENDENCY_FILES: the empty files of dependencies that make includes.
AC_DEFUN([PT_DEPENDENCY_FILES], [
  AC_CONFIG_COMMANDS([dependencies], [$SHELL "$srcdir/m4/dependencies.sh" Makefile "$pt_deps"],
                     [pt_deps='$DEPDIR'])
])
