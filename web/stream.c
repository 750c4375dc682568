/*
 * Server-sent events.
 *
 * A stream is a queue of frames between a producer and one connection. libmicrohttpd asks for bytes
 * when the socket takes them; when the queue is empty the producer is asked to proceed, and if it
 * has nothing the connection is suspended until a frame is pushed, so that a silent reader costs no
 * time. The queue is bounded: a producer whose push is refused remembers where it was and
 * continues from there in proceed(). So a slow reader slows only itself.
 *
 * Memory. A queue holds QUEUE frames and QUEUE_BYTES at most, but one frame at least. All queues
 * together hold STREAMED_MAX: a frame that several readers wait for is counted once, as it is kept
 * once. What proceed() pushes is for one reader alone and may fill SHARE_ALONE of that, so that
 * readers who are behind leave room for what happens now; only a reader who has taken all that it
 * was given gets its next frame beyond that share. A stream that could not get even its next frame
 * is ended. A reader who takes nothing while frames wait for it is cut off after TAKEN_MS. While
 * more than half of STREAMED_MAX is in use, those who have taken nothing for WEB_PATIENCE_ANSWER_MS
 * are cut off, too, the longest waiting first, until half is free: somebody who reads, but was late
 * on a busy machine, comes after all who do not. Either reconnects with Last-Event-ID and misses
 * nothing. The kernel's buffer of a connection is small, too: else it would hold megabytes for each
 * reader, and filling them would keep this thread from others.
 */
#include "web/internal.h"

#include <poll.h>
#include <sys/socket.h>

enum {
    QUEUE = 256,
    QUEUE_BYTES = 64 << 10,
    STREAMED_MAX = 32 << 20,
    SHARE_ALONE = STREAMED_MAX / 4 * 3,
    BLOCK_BYTES = 4096,
    QUIET_MS = 14000,
    TAKEN_MS = 300000,
};

struct web_frame {
    int refs;
    int queued; /* in so many queues */
    size_t n;
    char text[];
};

struct web_stream {
    struct web_stream *next, *prev;
    struct web_server *server;
    struct MHD_Connection *mhd;
    struct web_conn *conn;
    const struct web_token *token;
    struct web_stream_ops ops;
    void *ctx;
    struct web_frame *queue[QUEUE];
    unsigned head, count;
    size_t bytes; /* of the frames in the queue */
    size_t sent;  /* bytes of the first frame */
    int64_t last_ms;
    int64_t waits_ms; /* since when the frames wait that are to be taken next */
    bool feeding;     /* inside proceed() */
    bool suspended, ended;
};

static struct web_frame *frame_of(const char *text, size_t len)
{
    struct web_frame *f = mem_alloc(sizeof(*f) + len + 1);

    f->refs = 1;
    f->n = len;
    memcpy(f->text, text, len);
    return f;
}

struct web_frame *web_frame_new(const char *event, int64_t id, const char *data)
{
    AUTO_STR s = {0};

    assert(!strpbrk(data, "\r\n")); /* one line */
    if (id >= 0)
        str_addf(&s, "id: %lld\n", (long long)id);
    str_addf(&s, "event: %s\ndata: ", event);
    str_add(&s, data);
    str_add(&s, "\n\n");
    return frame_of(s.text, s.len);
}

static struct web_frame *ref_frame(struct web_frame *frame)
{
    frame->refs++;
    return frame;
}

struct web_frame *web_frame_unref(struct web_frame *frame)
{
    if (frame && --frame->refs == 0)
        free(frame);
    return NULL;
}

static size_t size_of(const struct web_frame *frame)
{
    return sizeof(*frame) + frame->n + 1;
}

static void enqueue(struct web_stream *stream, struct web_frame *frame)
{
    if (frame->queued++ == 0)
        stream->server->streamed += size_of(frame);
    stream->queue[(stream->head + stream->count++) % QUEUE] = ref_frame(frame);
    stream->bytes += size_of(frame);
}

static void dequeue(struct web_stream *stream)
{
    struct web_frame *f = stream->queue[stream->head];

    if (--f->queued == 0)
        stream->server->streamed -= size_of(f);
    stream->bytes -= size_of(f);
    stream->head = (stream->head + 1) % QUEUE;
    stream->count--;
    stream->sent = 0;
    web_frame_unref(f);
}

static size_t take(struct web_stream *stream, char *buf, size_t max)
{
    size_t n = 0;

    while (stream->count && n < max) {
        struct web_frame *f = stream->queue[stream->head];
        size_t k = f->n - stream->sent < max - n ? f->n - stream->sent : max - n;

        memcpy(buf + n, f->text + stream->sent, k);
        n += k;
        stream->sent += k;
        if (stream->sent == f->n)
            dequeue(stream);
    }
    return n;
}

static ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct web_stream *s = cls;
    size_t n = take(s, buf, max);

    (void)pos;
    if (n == 0 && !s->ended) {
        s->feeding = true;
        s->ops.proceed(s->ctx, s);
        s->feeding = false;
        n = take(s, buf, max);
    }
    if (n) {
        s->last_ms = s->waits_ms = (int64_t)uv_now(s->server->loop);
        s->server->stats.bytes_out += n;
        return (ssize_t)n;
    }
    if (s->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    s->suspended = true;
    MHD_suspend_connection(s->mhd);
    return 0;
}

static void stream_free(void *cls)
{
    struct web_stream *s = cls;

    *(s->prev ? &s->prev->next : &s->server->streams) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->server->nstreams--;
    s->ops.stop(s->ctx);
    while (s->count)
        dequeue(s);
    free(s);
}

static void wake(struct web_stream *stream)
{
    if (!stream->suspended)
        return;
    stream->suspended = false;
    web_conn_resume(stream->conn, stream->mhd);
}

void web_stream_end(struct web_stream *stream)
{
    stream->ended = true;
    wake(stream);
}

bool web_stream_push(struct web_stream *stream, struct web_frame *frame)
{
    size_t most = stream->feeding && stream->count ? SHARE_ALONE : STREAMED_MAX;

    if (stream->ended || stream->count == QUEUE ||
        (stream->count && stream->bytes + size_of(frame) > QUEUE_BYTES))
        return false;
    if (frame->queued == 0 && stream->server->streamed + size_of(frame) > most) {
        if (stream->count == 0)
            web_stream_end(stream); /* nothing else would wake it */
        return false;
    }
    if (stream->count == 0)
        stream->waits_ms = (int64_t)uv_now(stream->server->loop);
    enqueue(stream, frame);
    wake(stream);
    return true;
}

static void push_text(struct web_stream *stream, const char *text)
{
    struct web_frame *f = frame_of(text, strlen(text));

    web_stream_push(stream, f);
    web_frame_unref(f);
}

void web_streams_heartbeat(struct web_server *server)
{
    int64_t now = (int64_t)uv_now(server->loop);

    if (server->streamed > SHARE_ALONE)
        return; /* it would end those that it is for */
    for (struct web_stream *s = server->streams; s; s = s->next)
        if (s->suspended && now - s->last_ms >= QUIET_MS)
            push_text(s, ":\n\n");
}

/* Can the reader's connection take bytes now? Then frames wait for this process, not for it. */
static bool takes(const struct web_stream *stream)
{
    struct pollfd connection = {.fd = stream->conn->fd, .events = POLLOUT};

    return poll(&connection, 1, 0) == 1 && (connection.revents & POLLOUT);
}

static bool has_waited(const struct web_stream *stream, int64_t now, int64_t patience)
{
    return stream->count && now - stream->waits_ms > patience && !takes(stream);
}

static int by_wait(const void *left, const void *right)
{
    int64_t l = (*(struct web_stream *const *)left)->waits_ms,
            r = (*(struct web_stream *const *)right)->waits_ms;

    return (l > r) - (l < r);
}

/* Cut off readers who take nothing, the longest waiting first, until half of the memory is free.
 * Frames that several of them wait for are taken for freed with the first: what is left is for the
 * next sweep. */
static void make_room(struct web_server *server, int64_t now)
{
    AUTO_FREE struct web_stream **late = mem_alloc((size_t)server->nstreams * sizeof(*late) + 1);
    size_t n = 0, left = server->streamed;

    for (struct web_stream *s = server->streams; s; s = s->next)
        if (has_waited(s, now, WEB_PATIENCE_ANSWER_MS))
            late[n++] = s;
    qsort(late, n, sizeof(*late), by_wait);
    for (size_t i = 0; i < n && left > STREAMED_MAX / 2; i++) {
        left -= late[i]->bytes < left ? late[i]->bytes : left;
        shutdown(late[i]->conn->fd, SHUT_RDWR);
    }
}

void web_streams_sweep(struct web_server *server)
{
    int64_t now = (int64_t)uv_now(server->loop);

    for (struct web_stream *s = server->streams; s; s = s->next)
        if (has_waited(s, now, TAKEN_MS))
            shutdown(s->conn->fd, SHUT_RDWR);
    if (server->streamed > STREAMED_MAX / 2)
        make_room(server, now);
}

void web_streams_end(struct web_server *server)
{
    for (struct web_stream *s = server->streams; s; s = s->next)
        web_stream_end(s);
}

void web_streams_end_of(struct web_server *server, const struct web_token *token)
{
    for (struct web_stream *s = server->streams; s; s = s->next)
        if (s->token == token)
            web_stream_end(s);
}

int64_t web_last_event_id(struct web_request *rq)
{
    const char *text = web_request_header(rq, "Last-Event-ID");
    int64_t id = -1;

    if (!text)
        text = web_query(rq, "last_event_id");
    return str_to_i64(&id, text, 0, INT64_MAX) < 0 ? -1 : id;
}

void web_reply_stream(struct web_request *rq, const struct web_stream_ops *ops, void *ctx)
{
    struct web_server *server = rq->server;
    struct web_stream *s;
    struct MHD_Response *r;

    if (!rq->mhd) {
        ops->stop(ctx);
        return;
    }
    s = mem_alloc(sizeof(*s));
    s->server = server;
    s->mhd = rq->mhd;
    s->conn = rq->conn;
    s->token = rq->token;
    s->ops = *ops;
    s->ctx = ctx;
    s->last_ms = (int64_t)uv_now(server->loop);
    s->next = server->streams;
    if (s->next)
        s->next->prev = s;
    server->streams = s;
    server->nstreams++;
    web_conn_phase(rq->conn, 0, 0);
    setsockopt(rq->conn->fd, SOL_SOCKET, SO_SNDBUF, &(int){QUEUE_BYTES}, sizeof(int));
    push_text(s, "retry: 1000\n\n"); /* sends the head at once */
    r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, stream_read, s,
                                          stream_free);
    if (!r)
        abort(); /* out of memory */
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* nginx would hold events back */
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    for (const struct rq_header *h = rq->headers; h; h = h->next)
        MHD_add_response_header(r, h->name, h->value);
    web_request_answer(rq, 200, r);
}
