/* What a test and tests/fault/failnth.c share: one page, mapped by both. */
#ifndef TESTS_FAULT_FAILNTH_H
#define TESTS_FAULT_FAILNTH_H

enum { FAIL_NONE, FAIL_ALLOC, FAIL_WRITE, FAIL_SYNC, FAIL_STEP, FAIL_KINDS };

enum { FAIL_STACKS = 1 << 14 };

struct fail_page {
    volatile int kind;   /* that is armed; FAIL_NONE: nothing is counted */
    volatile int left;   /* calls of it until one fails */
    volatile int sticky; /* all after it fail as well, until disarmed */
    volatile int seen, failed;
    volatile int pid; /* of the program under test; 0: the next one that maps the page */
    /* Calls told apart by the stack that they come from (a hash of its addresses, never 0). While
     * `record` is set none fails, and each new stack is put into `stack`; with a `target`, only
     * calls from that stack are counted down. */
    volatile int record;
    volatile unsigned target;
    volatile int stacks; /* that are in the table; it may be full */
    volatile unsigned stack[FAIL_STACKS];
};

#endif
