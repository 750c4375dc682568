/* Workloads: how much work a step is, in which precision. */
#include "plan/plan.h"

#include <errno.h>

#include "base/base.h"

enum { MAX_BATCH = 1 << 24 };

const char *const pl_precision_names[] = {"fp32",          "bf16",  "fp8",   "fp8-current",
                                          "fp8-blockwise", "mxfp8", "nvfp4", NULL};

const char *const pl_optimizer_names[] = {"adamw", "sgd", "lamb", "muon", NULL};

static int documents_parse(struct pl_workload *workload, const json_t *json,
                           const struct pl_model *model, struct err *error)
{
    int r = jx_get_int(&workload->eod, json, "eod", 0, INT32_MAX, error);

    if (r < 0 ||
        (r = jx_get_bool(&workload->reset_attention_mask, json, "reset_attention_mask", error)) <
            0 ||
        (r = jx_get_bool(&workload->reset_position_ids, json, "reset_position_ids", error)) < 0 ||
        (r = jx_get_bool(&workload->eod_mask_loss, json, "eod_mask_loss", error)) < 0)
        return r;
    if (workload->eod >= model->vocab)
        return err_at(error, -ERANGE, "/eod", "eod %d is not below the model's vocabulary %d",
                      workload->eod, model->vocab);
    return 0;
}

bool pl_batch_known(const struct pl_workload *workload, int batch)
{
    for (int i = 0; i < workload->nbatches; i++)
        if (workload->batch[i] == batch)
            return true;
    return !workload->nbatches && (batch == 0 || batch == workload->global_batch);
}

char *pl_batches_text(char buf[160], const struct pl_workload *workload)
{
    AUTO_STR text = {0};

    for (int i = 0; i < workload->nbatches; i++)
        str_addf(&text, "%s%d",
                 i == 0                        ? ""
                 : i == workload->nbatches - 1 ? " and "
                                               : ", ",
                 workload->batch[i]);
    if (!workload->nbatches)
        str_addf(&text, "%d", workload->global_batch);
    snprintf(buf, 160, "%s", str_text(&text));
    return buf;
}

void pl_batch_settle(struct pl_workload *workload, struct pl_layout *layout)
{
    workload->global_batch = pl_batch(workload, layout);
    workload->nbatches = 0;
    layout->global_batch = 0;
}

/* A number, or an array of different ones. */
static int batch_parse(struct pl_workload *workload, const json_t *json, struct err *error)
{
    const json_t *list = json_object_get(json, "global_batch");
    size_t n = json_array_size(list);

    if (list && !json_is_null(list) && !json_is_integer(list) && !json_is_array(list))
        return err_at(error, -EINVAL, "/global_batch",
                      "global_batch must be a number of sequences, or a list of up to %d of them: "
                      "[256, 512]",
                      PL_MAX_BATCHES);
    if (!json_is_array(list))
        return jx_get_int(&workload->global_batch, json, "global_batch", 1, MAX_BATCH, error);
    if (n == 0 || n > PL_MAX_BATCHES)
        return err_at(error, -EINVAL, "/global_batch", "global_batch lists 1 to %d values, not %zu",
                      PL_MAX_BATCHES, n);
    for (size_t i = 0; i < n; i++) {
        json_int_t value = json_integer_value(json_array_get(list, i));
        char at[32];

        snprintf(at, sizeof(at), "/global_batch/%zu", i);
        if (value < 1 || value > MAX_BATCH)
            return err_at(error, -EINVAL, at,
                          "value %zu of global_batch must be an integer in 1..%d", i, MAX_BATCH);
        if (pl_batch_known(workload, (int)value))
            return err_at(error, -EINVAL, at, "global_batch %d is listed twice", (int)value);
        workload->batch[workload->nbatches++] = (int)value;
    }
    workload->global_batch = workload->batch[0];
    if (n == 1)
        workload->nbatches = 0;
    return 0;
}

int pl_workload_parse(struct pl_workload *ret, const json_t *json, const struct pl_model *model,
                      const struct pl_trainer *trainer, struct err *error)
{
    static const char *const keys[] = {"global_batch",
                                       "seq",
                                       "precision",
                                       "data",
                                       "optimizer",
                                       "eod",
                                       "reset_attention_mask",
                                       "reset_position_ids",
                                       "eod_mask_loss",
                                       NULL};
    struct pl_workload workload = {.seq = model->seq, .data = "synthetic"};
    int r, precision = trainer->bundled ? PL_FP32 : PL_BF16, optimizer = PL_ADAMW;

    if ((r = jx_keys(json, keys, error)) < 0 || (r = jx_need(json, "global_batch", error)) < 0 ||
        (r = batch_parse(&workload, json, error)) < 0 ||
        (r = jx_get_int(&workload.seq, json, "seq", 1, 1 << 24, error)) < 0 ||
        (r = jx_get_enum(&precision, json, "precision", pl_precision_names, error)) < 0 ||
        (r = jx_get_enum(&optimizer, json, "optimizer", pl_optimizer_names, error)) < 0 ||
        (r = jx_copy_str(workload.data, sizeof(workload.data), json, "data", error)) < 0 ||
        (r = documents_parse(&workload, json, model, error)) < 0)
        return r;
    if (model->positions == PL_LEARNED && workload.seq > model->seq)
        return err_at(error, -ERANGE, "/seq",
                      "seq %d is longer than the model's %d learned positions", workload.seq,
                      model->seq);
    workload.precision = (enum pl_precision)precision;
    workload.optimizer = (enum pl_optimizer)optimizer;
    *ret = workload;
    return 0;
}

json_t *pl_workload_json(const struct pl_workload *workload)
{
    json_t *json =
        json_pack("{s:i s:i s:s s:s}", "global_batch", workload->global_batch, "seq", workload->seq,
                  "precision", pl_precision_names[workload->precision], "data", workload->data);

    /* files and results of versions that knew no other stay as they were */
    if (workload->nbatches) {
        json_t *list = json_array();

        for (int i = 0; i < workload->nbatches; i++)
            json_array_append_new(list, json_integer(workload->batch[i]));
        json_object_set_new(json, "global_batch", list);
    }
    if (workload->optimizer != PL_ADAMW)
        json_object_set_new(json, "optimizer",
                            json_string(pl_optimizer_names[workload->optimizer]));
    if (workload->eod)
        json_object_set_new(json, "eod", json_integer(workload->eod));
    if (workload->reset_attention_mask)
        json_object_set_new(json, "reset_attention_mask", json_true());
    if (workload->reset_position_ids)
        json_object_set_new(json, "reset_position_ids", json_true());
    if (workload->eod_mask_loss)
        json_object_set_new(json, "eod_mask_loss", json_true());
    return json;
}
