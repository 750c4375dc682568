#include "trainer/team.h"

#include "base/base.h"
#include "trainer/fail.h"
#include "trainer/stop.h"

#include <assert.h>
#include <errno.h>

enum { TEXT = 480 }; /* of struct tr_team's agreement */

/* The smallest status, and the text of the first rank that has it. Before the first step, a rank
 * that was asked to stop reports it here, by -ECANCELED. */
static int agree(void *ctx, int status, char *text)
{
    struct tr_comms *c = ctx;
    struct {
        int status, rank;
    } mine = {status, c->world.rank}, all;
    MPI_Request req;

    assert(status <= 0);
    if (status == 0 && tr_stop_now())
        mine.status = -ECANCELED;
    MPI_Iallreduce(&mine, &all, 1, MPI_2INT, MPI_MINLOC, c->world.comm, &req);
    tr_wait(&c->progress, tr_op_begin(TR_OP_ALL_REDUCE, &c->world), &req, 1);
    if (all.status < 0) {
        text[TEXT - 1] = '\0';
        MPI_Ibcast(text, TEXT, MPI_CHAR, all.rank, c->world.comm, &req);
        tr_wait(&c->progress, tr_op_begin(TR_OP_BROADCAST, &c->world), &req, 1);
    }
    return all.status;
}

static void share(void *ctx, void *bytes, size_t parts)
{
    struct tr_comms *c = ctx;
    MPI_Request req;

    MPI_Ibcast(bytes, (int)parts, MPI_BYTE, 0, c->world.comm, &req);
    tr_wait(&c->progress, tr_op_begin(TR_OP_BROADCAST, &c->world), &req, 1);
}

struct tr_team tr_team_of(struct tr_comms *comms)
{
    return (struct tr_team){.rank = comms->world.rank,
                            .size = comms->world.size,
                            .agree = agree,
                            .share = share,
                            .ctx = comms};
}

static enum tr_error class_of(int code)
{
    return code == -ENOMEM ? TR_ERROR_OOM
           : code == -EINVAL || code == -EILSEQ || code == -ERANGE || code == -EBADMSG ||
                   code == -ENODATA || code == -ENOENT || code == -EFBIG
               ? TR_ERROR_DATA
               : TR_ERROR_IO;
}

void tr_require(int code, const struct err *error)
{
    if (code < 0)
        tr_fail(class_of(code), error->text);
}

void tr_require_all(const struct tr_team *team, int code, const struct err *error)
{
    if (code < 0 && team->rank != 0)
        tr_fail_await_rank_0();
    if (code == -ECANCELED)
        tr_fail_stopped("signal, before the first step");
    tr_require(code, error);
}
