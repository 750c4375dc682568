/* Functions that have a safer sibling here or in libc. Using one is a compile error. */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets strtok asctime ctime atoi   \
    atol

#endif
