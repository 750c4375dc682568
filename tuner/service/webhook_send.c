/*
 * The requests of webhooks: libcurl's multi interface on a thread of its own, so that neither a
 * slow receiver nor the resolver holds up the loop or another receiver.
 *
 * An address is judged where the socket is made, after the name was resolved: what is checked is
 * what is connected to, and a name that answers differently the second time gains nothing. Proxies
 * of the environment are ignored, since their address would be judged instead; redirects are not
 * followed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <nettle/hmac.h>
#include <pthread.h>
#include <unistd.h>

#include "tuner/machine/libcurl.h"
#include "tuner/service/webhook.h"

enum { CONNECT_MS = 5000, ANSWER_MS = 10000, POLL_MS = 60000 };

static const struct tn_curl *curl; /* loaded by tn_sender_start() */

struct request {
    struct request *next;
    struct tn_post *p;
    CURL *easy;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
    char forbidden[INET6_ADDRSTRLEN]; /* an address that was refused, or "" */
};

struct tn_sender {
    pthread_t thread;
    pthread_mutex_t lock;
    CURLM *multi;
    struct tn_post *waiting, *answered; /* under the lock */
    bool stop;                          /* under the lock */
    struct request *requests;           /* of the thread */
    void (*done)(void *arg);
    void *arg;
};

struct tn_post *tn_post_free(struct tn_post *post)
{
    if (!post)
        return NULL;
    free(post->hook);
    free(post->url);
    free(post->event);
    free(post->secret);
    free(post->ca_file);
    free(post->body);
    free(post->problem);
    free(post);
    return NULL;
}

/* ---- addresses ----------------------------------------------------------- */

struct range {
    uint32_t base;
    int bits;
};

/* The special-purpose blocks of RFC 6890 and its registry, and what is not unicast. */
static bool public_v4(uint32_t ip)
{
    static const struct range not_public[] = {
        {0x00000000, 8},  /* this network */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* shared by carriers */
        {0x7f000000, 8},  /* loopback */
        {0xa9fe0000, 16}, /* link-local, with the metadata services of clouds */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocol assignments */
        {0xc0000200, 24}, /* documentation */
        {0xc0586300, 24}, /* 6to4 relays */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks of networks */
        {0xc6336400, 24}, /* documentation */
        {0xcb007100, 24}, /* documentation */
        {0xe0000000, 3},  /* multicast, reserved, broadcast */
    };

    for (size_t i = 0; i < ARRAY_LEN(not_public); i++)
        if ((ip ^ not_public[i].base) >> (32 - not_public[i].bits) == 0)
            return false;
    return true;
}

static uint32_t load32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool public_v6(const uint8_t *bytes)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};

    if (!memcmp(bytes, mapped, sizeof(mapped)) || !memcmp(bytes, nat64, sizeof(nat64)))
        return public_v4(load32(bytes + 12));
    if (bytes[0] >> 5 != 1) /* 2000::/3 is all that is given out */
        return false;
    if (load32(bytes) == 0x20010db8) /* documentation */
        return false;
    if (bytes[0] == 0x20 && bytes[1] == 0x01 &&
        bytes[2] < 2) /* 2001::/23: Teredo and other special uses */
        return false;
    if (bytes[0] == 0x20 && bytes[1] == 0x02) /* 6to4 */
        return public_v4(load32(bytes + 2));
    return !(bytes[0] == 0x3f && bytes[1] == 0xff && bytes[2] < 0x10); /* documentation */
}

bool tn_address_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return public_v4(
            ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return public_v6(((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
    return false;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct request *q = arg;
    const struct sockaddr *a = &address->addr;

    (void)purpose;
    if (!q->p->allow_private && !tn_address_public(a)) {
        const void *ip =
            a->sa_family == AF_INET
                ? (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr
                : (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;

        inet_ntop(a->sa_family, ip, q->forbidden, sizeof(q->forbidden));
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* ---- a request ----------------------------------------------------------- */

void tn_signature(char ret[TN_SIGNATURE_TEXT], const char *secret, int64_t time, const char *body)
{
    struct hmac_sha256_ctx ctx;
    uint8_t digest[SHA256_DIGEST_SIZE];
    char stamp[24];
    int n = snprintf(stamp, sizeof(stamp), "%lld.", (long long)time);

    hmac_sha256_set_key(&ctx, strlen(secret), (const uint8_t *)secret);
    hmac_sha256_update(&ctx, (size_t)n, (const uint8_t *)stamp);
    hmac_sha256_update(&ctx, strlen(body), (const uint8_t *)body);
    hmac_sha256_digest(&ctx, sizeof(digest), digest);
    n = snprintf(ret, TN_SIGNATURE_TEXT, "sha256=");
    for (size_t i = 0; i < sizeof(digest); i++)
        n += snprintf(ret + n, (size_t)(TN_SIGNATURE_TEXT - n), "%02x", digest[i]);
}

static void add_header(struct request *request, const char *name, const char *value)
{
    AUTO_FREE char *line = mem_printf("%s: %s", name, value);
    struct curl_slist *more = curl->slist_append(request->headers, line);

    request->headers = more ? more : request->headers;
}

static void set_headers(struct request *request)
{
    char signature[TN_SIGNATURE_TEXT], stamp[24];
    int64_t now = clock_wall_ms() / 1000;

    snprintf(stamp, sizeof(stamp), "%lld", (long long)now);
    tn_signature(signature, request->p->secret, now, request->p->body);
    add_header(request, "Content-Type", "application/json");
    add_header(request, "Partune-Event", request->p->event);
    add_header(request, "Partune-Delivery", request->p->uuid);
    add_header(request, "Partune-Timestamp", stamp);
    add_header(request, "Partune-Signature", signature);
}

/* Nobody reads what a receiver says. */
static size_t drop(char *bytes, size_t size, size_t count, void *arg)
{
    (void)bytes;
    (void)arg;
    return size * count;
}

static void set_up(struct request *request)
{
    CURL *h = request->easy;

    set_headers(request);
    curl->easy_setopt(h, CURLOPT_PRIVATE, request);
    curl->easy_setopt(h, CURLOPT_URL, request->p->url);
    curl->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(h, CURLOPT_PROXY, "");
    curl->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    curl->easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl->easy_setopt(h, CURLOPT_OPENSOCKETDATA, request);
    curl->easy_setopt(h, CURLOPT_FORBID_REUSE, 1L); /* each request's address is judged */
    curl->easy_setopt(h, CURLOPT_FRESH_CONNECT, 1L);
    curl->easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl->easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
    curl->easy_setopt(h, CURLOPT_USERAGENT, "partune/" PACKAGE_VERSION);
    curl->easy_setopt(h, CURLOPT_HTTPHEADER, request->headers);
    curl->easy_setopt(h, CURLOPT_POSTFIELDSIZE, (long)strlen(request->p->body));
    curl->easy_setopt(h, CURLOPT_POSTFIELDS, request->p->body);
    curl->easy_setopt(h, CURLOPT_WRITEFUNCTION, drop);
    curl->easy_setopt(h, CURLOPT_ERRORBUFFER, request->error);
    if (request->p->ca_file)
        curl->easy_setopt(h, CURLOPT_CAINFO, request->p->ca_file);
}

/* The request is over: its post goes back. */
static void answer(struct tn_sender *sender, struct request *request)
{
    struct request **at = &sender->requests;

    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    curl->multi_remove_handle(sender->multi, request->easy);
    curl->easy_cleanup(request->easy);
    curl->slist_free_all(request->headers);
    pthread_mutex_lock(&sender->lock);
    request->p->next = sender->answered;
    sender->answered = request->p;
    pthread_mutex_unlock(&sender->lock);
    free(request);
    sender->done(sender->arg);
}

static void judge(struct tn_sender *sender, struct request *request, CURLcode code)
{
    curl->easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &request->p->status);
    if (code != CURLE_OK) {
        request->p->status = 0;
        request->p->refused = request->forbidden[0] != '\0' && code == CURLE_COULDNT_CONNECT;
        request->p->problem =
            request->p->refused
                ? mem_printf("%s is not a public address; allow-private = yes permits it",
                             request->forbidden)
                : mem_strdup(request->error[0] ? request->error : curl->easy_strerror(code));
    }
    answer(sender, request);
}

static void begin(struct tn_sender *sender, struct tn_post *post)
{
    struct request *q = mem_alloc(sizeof(*q));

    q->p = post;
    q->next = sender->requests;
    sender->requests = q;
    q->easy = curl->easy_init();
    if (!q->easy) {
        post->problem = mem_strdup("out of memory");
        answer(sender, q);
        return;
    }
    set_up(q);
    curl->multi_add_handle(sender->multi, q->easy);
}

/* ---- the thread ---------------------------------------------------------- */

/* False: stop. */
static bool take_waiting(struct tn_sender *sender)
{
    struct tn_post *p, *next;
    bool stop;

    pthread_mutex_lock(&sender->lock);
    p = sender->waiting;
    sender->waiting = NULL;
    stop = sender->stop;
    pthread_mutex_unlock(&sender->lock);
    for (; p; p = next) {
        next = p->next;
        p->next = NULL;
        begin(sender, p);
    }
    return !stop;
}

static void *sender_main(void *arg)
{
    struct tn_sender *s = arg;
    CURLMsg *m;
    int running, left;

    while (take_waiting(s)) {
        curl->multi_perform(s->multi, &running);
        while ((m = curl->multi_info_read(s->multi, &left))) {
            struct request *q = NULL;

            if (m->msg != CURLMSG_DONE)
                continue;
            curl->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&q);
            judge(s, q, m->data.result);
        }
        curl->multi_poll(s->multi, NULL, 0, POLL_MS, NULL);
    }
    while (s->requests)
        judge(s, s->requests, CURLE_ABORTED_BY_CALLBACK);
    return NULL;
}

int tn_sender_start(struct tn_sender **ret, void (*done)(void *arg), void *arg, struct err *error)
{
    struct tn_sender *s;
    int r;

    curl = tn_curl_load(error);
    if (!curl)
        return -ENOSYS;
    s = mem_alloc(sizeof(*s));
    s->done = done;
    s->arg = arg;
    s->multi = curl->multi_init();
    pthread_mutex_init(&s->lock, NULL);
    r = s->multi ? pthread_create(&s->thread, NULL, sender_main, s) : ENOMEM;
    if (r != 0) {
        curl->multi_cleanup(s->multi);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return err_set(error, -r, "the thread of webhooks: %s", strerror(r));
    }
    *ret = s;
    return 0;
}

void tn_sender_post(struct tn_sender *sender, struct tn_post *owned_p)
{
    pthread_mutex_lock(&sender->lock);
    owned_p->next = sender->waiting;
    sender->waiting = owned_p;
    pthread_mutex_unlock(&sender->lock);
    curl->multi_wakeup(sender->multi);
}

struct tn_post *tn_sender_take(struct tn_sender *sender)
{
    struct tn_post *p;

    pthread_mutex_lock(&sender->lock);
    p = sender->answered;
    sender->answered = NULL;
    pthread_mutex_unlock(&sender->lock);
    return p;
}

static void free_all(struct tn_post *post)
{
    struct tn_post *next;

    for (; post; post = next) {
        next = post->next;
        tn_post_free(post);
    }
}

struct tn_sender *tn_sender_stop(struct tn_sender *sender)
{
    if (!sender)
        return NULL;
    pthread_mutex_lock(&sender->lock);
    sender->stop = true;
    pthread_mutex_unlock(&sender->lock);
    curl->multi_wakeup(sender->multi);
    pthread_join(sender->thread, NULL);
    free_all(sender->waiting);
    free_all(sender->answered);
    curl->multi_cleanup(sender->multi);
    pthread_mutex_destroy(&sender->lock);
    free(sender);
    return NULL;
}
