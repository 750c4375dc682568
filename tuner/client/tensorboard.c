/*
 * Event files of TensorBoard.
 *
 * A file is a sequence of records (TFRecord): length, 8 bytes; masked CRC of those; the data;
 * masked CRC of the data, all little-endian. The CRC is CRC-32C (Castagnoli, reflected polynomial
 * 0x82f63b78), masked as ((crc >> 15) | (crc << 17)) + 0xa282ead8. The data is an Event, a message
 * of Protocol Buffers:
 *
 *   Event          1 wall_time double, 2 step int64, 3 file_version string, 5 Summary
 *   Summary        1 Value, repeated
 *   Value          1 tag string, 2 simple_value float, 9 SummaryMetadata
 *   SummaryMetadata  1 PluginData: 1 plugin_name string, 2 content bytes
 *
 * and for the layout, which the HPARAMS page shows: content is HParamsPluginData, 3
 * SessionStartInfo: 1 hparams, a map: entries of 1 key string, 2 Value (2 number double, 3 string);
 * 5 start_time_secs double; or 4 SessionEndInfo: 1 status (1 success, 2 failure), 2 end_time_secs.
 */
#include "tuner/client/log_to.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <math.h>

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* ---- messages ------------------------------------------------------------ */

static void add_varint(struct str *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        str_addc(out, (char)(0x80 | (value & 0x7f)));
    str_addc(out, (char)value);
}

static void add_key(struct str *out, int field, enum wire wire)
{
    assert(field > 0); /* protobuf counts from 1 */
    add_varint(out, (uint64_t)field << 3 | wire);
}

static void add_double(struct str *out, int field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    bits = htole64(bits);
    add_key(out, field, FIXED64);
    str_addn(out, &bits, sizeof(bits));
}

static void add_float(struct str *out, int field, double value)
{
    float narrow = (float)value;
    uint32_t bits;

    memcpy(&bits, &narrow, sizeof(bits));
    bits = htole32(bits);
    add_key(out, field, FIXED32);
    str_addn(out, &bits, sizeof(bits));
}

static void add_bytes(struct str *out, int field, const char *bytes, size_t size)
{
    add_key(out, field, BYTES);
    add_varint(out, size);
    str_addn(out, bytes, size);
}

static void add_string(struct str *out, int field, const char *text)
{
    add_bytes(out, field, text, strlen(text));
}

/* MESSAGE as field FIELD; it is empty afterwards. */
static void add_message(struct str *out, int field, struct str *message)
{
    add_bytes(out, field, str_text(message), message->len);
    str_done(message);
}

/* ---- records ------------------------------------------------------------- */

static uint32_t masked_crc(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint32_t crc = ~UINT32_C(0);

    for (; size--; at++) {
        crc ^= *at;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void add_record(struct str *out, struct str *event)
{
    uint64_t length = htole64(event->len);
    uint32_t of_length = htole32(masked_crc(&length, sizeof(length)));
    uint32_t of_data = htole32(masked_crc(str_text(event), event->len));

    str_addn(out, &length, sizeof(length));
    str_addn(out, &of_length, sizeof(of_length));
    str_addn(out, str_text(event), event->len);
    str_addn(out, &of_data, sizeof(of_data));
    str_done(event);
}

/* An event with one Value, which is taken. */
static void add_value(struct str *out, double wall, int64_t step, struct str *value)
{
    struct str event = {0}, summary = {0};

    add_double(&event, 1, wall);
    if (step) {
        add_key(&event, 2, VARINT);
        add_varint(&event, (uint64_t)step);
    }
    add_message(&summary, 1, value);
    add_message(&event, 5, &summary);
    add_record(out, &event);
}

static void add_scalar(struct str *out, double wall, int64_t step, const char *tag, double number)
{
    struct str value = {0};

    if (!isfinite(number))
        return;
    add_string(&value, 1, tag);
    add_float(&value, 2, number);
    add_value(out, wall, step, &value);
}

/* ---- the layout ---------------------------------------------------------- */

static void add_plugin(struct str *out, double wall, const char *tag, struct str *content)
{
    struct str value = {0}, metadata = {0}, plugin = {0};

    add_string(&plugin, 1, "hparams");
    add_message(&plugin, 2, content);
    add_message(&metadata, 1, &plugin);
    add_string(&value, 1, tag);
    add_message(&value, 9, &metadata);
    add_value(out, wall, 0, &value);
}

static void add_parameter(struct str *session, const char *key, const json_t *setting)
{
    struct str entry = {0}, value = {0};

    add_string(&entry, 1, key);
    if (json_is_number(setting)) {
        add_double(&value, 2, json_number_value(setting));
    } else {
        AUTO_FREE char *text = log_to_value(setting);

        add_string(&value, 3, text);
    }
    add_message(&entry, 2, &value);
    add_message(session, 1, &entry);
}

static void add_session_start(struct str *out, double wall, const json_t *trial)
{
    struct str session = {0}, content = {0};
    const char *key;
    json_t *setting;

    json_object_foreach(json_object_get(trial, "layout"), key, setting)
        add_parameter(&session, key, setting);
    add_parameter(&session, "simulated", json_object_get(trial, "simulated"));
    add_double(&session, 5, wall);
    add_message(&content, 3, &session);
    add_plugin(out, wall, "_hparams_/session_start_info", &content);
}

static void add_session_end(struct str *out, double wall, const json_t *trial)
{
    struct str session = {0}, content = {0};

    add_key(&session, 1, VARINT);
    add_varint(&session, str_eq(cl_string(trial, "state"), "ok") ? 1 : 2);
    add_double(&session, 2, wall);
    add_message(&content, 4, &session);
    add_plugin(out, wall, "_hparams_/session_end_info", &content);
}

/* ---- files --------------------------------------------------------------- */

static void add_trial(struct str *out, const json_t *trial, const json_t *steps)
{
    double wall = (double)log_to_started_ms(trial) / 1000;
    struct str version = {0};
    json_t *step;
    size_t i;

    add_double(&version, 1, wall);
    add_string(&version, 3, "brain.Event:2");
    add_record(out, &version);
    add_session_start(out, wall, trial);
    json_array_foreach((json_t *)(uintptr_t)steps, i, step) {
        if (isfinite(cl_number(step, "ms")))
            wall += cl_number(step, "ms") / 1000;
        for (int k = 0; log_to_step[k][0]; k++)
            add_scalar(out, wall, (int64_t)cl_number(step, "n"), log_to_step[k][1],
                       cl_number(step, log_to_step[k][0]));
    }
    for (int k = 0; log_to_results[k][0]; k++) {
        AUTO_FREE char *tag = mem_printf("trial/%s", log_to_results[k][1]);

        add_scalar(out, wall, 0, tag, cl_number(trial, log_to_results[k][0]));
    }
    add_session_end(out, wall, trial);
}

int log_to_tensorboard(bool *ret_fresh, void *ctx, const json_t *campaign, const json_t *trial,
                       const json_t *steps)
{
    AUTO_FREE char *folder = mem_printf("%s/%s/trial-%03.0f", (const char *)ctx,
                                        cl_string(campaign, "id"), cl_number(trial, "n"));
    AUTO_FREE char *path = mem_printf("%s/events.out.tfevents.%lld.partune", folder,
                                      (long long)(log_to_started_ms(trial) / 1000));
    AUTO_STR file = {0};
    struct err e = {0};

    add_trial(&file, trial, steps);
    if (file_mkdirs(folder, 0755, &e) < 0 ||
        file_write_atomic(path, str_text(&file), file.len, 0644, &e) < 0) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    *ret_fresh = true;
    return CL_OK;
}
