/*
 * Programs that the build runs to print a table of rows (a .def file) for people: "js", a module of
 * the dashboard; "md", a table of the documents.
 */
#ifndef BASE_PRINT_H
#define BASE_PRINT_H

#include <stdio.h>
#include <string.h>

/* The main() of PROGRAM: JS or MD prints, as argv[1] says. Returns the exit code. */
static inline int print_main(int argc, char **argv, const char *program, void (*js)(void),
                             void (*md)(void))
{
    if (argc == 2 && strcmp(argv[1], "js") == 0)
        js();
    else if (argc == 2 && strcmp(argv[1], "md") == 0)
        md();
    else
        return fprintf(stderr, "usage: %s js|md\n", program) < 0 ? 1 : 2;
    return fflush(stdout) ? 1 : 0;
}

#endif
