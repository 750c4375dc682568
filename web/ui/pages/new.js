// A new campaign. The form edits a JSON object that is shown beside it and may be edited there just as well; after every
// change the service is asked what it makes of it, so nobody submits something that will be refused.

import { ApiError, campaignPath, get, post } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, prettyJson, rate, seconds } from "../lib/format.js";
import { go } from "../lib/router.js";
import { BASELINE_RULES, MEMORY_CLASSES, MEMORY_HELP, ordered } from "../lib/words.js";
import { failure, notice, pairs, panel } from "../parts/parts.js";
import {
    boundField,
    offers,
    presetField,
    problemsOf,
    put,
    showProblems,
    takeDraft,
} from "../parts/job.js";

const CHECK_MS = 400;

function starting(list) {
    return {
        name: "my-campaign",
        model: list.models.includes("tiny-moe") ? "tiny-moe" : list.models[0],
        cluster: "local",
        workload: {
            global_batch: 16,
            data: list.datasets.find((d) => d !== "synthetic") ?? "synthetic",
        },
        budget: { trials: 16 },
    };
}

async function firstSpec(ctx, list) {
    if (ctx.query.from) {
        const c = await get(campaignPath(ctx.query.from), null, ctx.signal);
        return { ...c.spec, name: `${c.name.slice(0, 100)} again` };
    }
    const draft = takeDraft();
    return draft ? { ...starting(list), ...draft } : starting(list);
}

function sections(list, edit) {
    const f = (pointer, title, type, more) => boundField(pointer, { title, type, ...more }, edit);
    return [
        [
            "What",
            [
                f("/name", "Name", "text"),
                presetField("model", list.models, edit),
                presetField("cluster", list.clusters, edit),
                f("/trainer", "Trainer", "text", { placeholder: "partune" }),
            ],
        ],
        [
            "Work of every trial",
            [
                f("/workload/global_batch", "Global batch (sequences)", "number"),
                f("/workload/seq", "Sequence (tokens)", "number", {
                    placeholder: "as in the model",
                }),
                f("/workload/data", "Data set", "text", {
                    options: list.datasets.map((d) => [d, d]),
                }),
                f("/workload/precision", "Precision", "text", {
                    options: [
                        ["", "the trainer's default"],
                        ["fp32", "fp32"],
                        ["bf16", "bf16"],
                        ["fp8", "fp8"],
                    ],
                }),
            ],
        ],
        [
            "Space (empty: every value that the trainer supports)",
            [
                f("/space/world", "Ranks", "numbers", { placeholder: "all devices" }),
                f("/space/tp", "tp", "numbers"),
                f("/space/pp", "pp", "numbers"),
                f("/space/ep", "ep", "numbers"),
                f("/space/micro_batch", "micro_batch", "numbers"),
                f("/space/zero", "zero", "numbers"),
                f("/space/recompute", "recompute", "list"),
            ],
        ],
        [
            "Budget and search",
            [
                f("/baseline", "Baseline", "text", {
                    options: [
                        ["", "what a competent engineer would start from"],
                        ["naive", "the largest data parallelism that fits"],
                    ],
                    help: "what the winner is compared with; a layout of your own goes into the JSON",
                }),
                f("/budget/trials", "Trials", "number"),
                f("/budget/wall_s", "Time (s)", "number", { placeholder: "no limit" }),
                f("/budget/device_s", "Device time (s)", "number", {
                    placeholder: "no limit",
                    help: "devices times seconds",
                }),
                f("/trial/max_steps", "Most steps a trial", "number", {
                    placeholder: "the service's default",
                }),
                f("/trial/timeout_s", "Trial time limit (s)", "number", {
                    placeholder: "the service's default",
                }),
                f("/search/method", "Method", "text", {
                    options: [
                        ["", "bayes"],
                        ["random", "random"],
                        ["grid", "grid"],
                    ],
                }),
                f("/search/seed", "Seed", "number", { placeholder: "by chance" }),
                f("/search/parallel", "Trials at once", "number", {
                    placeholder: "the service's default",
                }),
                f("/objective", "Objective", "text", {
                    options: [
                        ["", "tokens/s"],
                        ["tokens_per_s_per_device", "tokens/s of each device"],
                    ],
                }),
            ],
        ],
        [
            "For people",
            [
                f("/tags", "Tags", "list"),
                f("/notes", "Notes", "text"),
                f("/priority", "Priority (-100 to 100)", "number", { placeholder: "0" }),
            ],
        ],
    ];
}

/** Memory and time of the first trial, so that a job which cannot fit is seen before it is submitted. */
async function baselineView(spec, baseline, signal) {
    const check = await post(
        "v1/check",
        {
            model: spec.model,
            ...(spec.cluster !== undefined && { cluster: spec.cluster }),
            workload: spec.workload,
            layout: baseline,
            ...(spec.trainer !== undefined && { trainer: spec.trainer }),
        },
        { signal },
    );
    const classes = ordered(check.memory ?? {}, MEMORY_CLASSES).filter(
        (k) => !["total", "rank"].includes(k) && check.memory[k] > 0,
    );
    return pairs([
        [
            "Baseline memory",
            `${bytes(check.memory?.total)} on the worst rank${check.fits === false ? ": does not fit" : ""}`,
        ],
        classes.length && [
            "of which",
            classes.map((name, i) => [
                i ? ", " : "",
                h("span", { title: MEMORY_HELP[name] ?? null }, `${name} ${bytes(check.memory[name])}`),
            ]),
        ],
        check.cost?.tokens_per_s && ["Baseline expected", rate(check.cost.tokens_per_s)],
    ]);
}

export async function render(ctx) {
    const list = await offers(ctx.signal);
    let spec = await firstSpec(ctx, list);
    let timer = 0;
    let checks = 0;

    const verdict = h("div", { "aria-live": "polite" });
    const rest = h("div", { role: "alert" });
    const text = h("textarea", {
        rows: "22",
        spellcheck: "false",
        "aria-label": "the campaign as JSON",
        oninput: readText,
    });
    const submit = h("button", { class: "primary", disabled: true }, "Start the campaign");
    const groups = sections(list, (pointer, value) =>
        change(put(spec, pointer, value === "" ? undefined : value)),
    );
    const fields = groups.flatMap(([, f]) => f);

    function change(next) {
        spec = next;
        text.value = prettyJson(spec);
        fields.forEach((f) => f.show(spec));
        checkSoon();
    }

    function readText() {
        try {
            spec = JSON.parse(text.value);
            text.removeAttribute("aria-invalid");
            fill(rest);
            fields.forEach((f) => f.show(spec));
            checkSoon();
        } catch (e) {
            text.setAttribute("aria-invalid", "true");
            submit.disabled = true;
            fill(rest, notice("bad", `Not JSON yet: ${e.message}`));
        }
    }

    function checkSoon() {
        clearTimeout(timer);
        timer = setTimeout(check, CHECK_MS);
    }

    function refuse(error) {
        submit.disabled = true;
        if (!(error instanceof ApiError)) {
            fill(verdict, failure(error, check));
            return;
        }
        const left = showProblems(fields, problemsOf(error));
        fill(
            verdict,
            notice(
                "bad",
                h("p", {}, "This would be refused."),
                left.length > 0 &&
                    h(
                        "ul",
                        {},
                        left.map((p) =>
                            h(
                                "li",
                                {},
                                p.pointer && h("code", {}, p.pointer),
                                p.pointer ? " " : "",
                                p.detail,
                            ),
                        ),
                    ),
            ),
        );
    }

    async function check() {
        const mine = ++checks;
        const asked = spec;
        try {
            const answer = await post("v1/campaigns", asked, {
                query: { dry_run: "true" },
                signal: ctx.signal,
            });
            if (mine !== checks) return;
            fields.forEach((f) => f.fail(""));
            submit.disabled = false;
            const more = h("div", { class: "soft" }, "…");
            fill(
                verdict,
                notice(
                    "good",
                    pairs([
                        ["Legal layouts", `${answer.exact === false ? "at least " : ""}${count(answer.legal)}`],
                        answer.fitting !== undefined && [
                            "of which fit",
                            `${answer.exact === false ? "at least " : ""}${count(answer.fitting)}`,
                        ],
                        answer.reason && ["Beware", answer.reason],
                        ["Trials expected", count(answer.expected_trials)],
                        ["Time expected", seconds(answer.expected_s)],
                        [
                            "Baseline",
                            h(
                                "span",
                                { class: "mono" },
                                answer.baseline?.text ?? layoutText(answer.baseline),
                            ),
                        ],
                        [
                            "Baseline rule",
                            [BASELINE_RULES[answer.baseline_rule], answer.baseline_note]
                                .filter(Boolean)
                                .join(", "),
                        ],
                    ]),
                    more,
                ),
            );
            fill(
                more,
                answer.baseline
                    ? await baselineView(
                          asked,
                          answer.baseline.layout ?? answer.baseline,
                          ctx.signal,
                      ).catch(() => "")
                    : "",
            );
        } catch (error) {
            if (error.name !== "AbortError" && mine === checks) refuse(error);
        }
    }

    let key = crypto.randomUUID?.() ?? String(Math.random());
    async function send(event) {
        event.preventDefault();
        submit.disabled = true;
        try {
            const c = await post("v1/campaigns", spec, {
                key: `${key}-${hash(JSON.stringify(spec))}`,
            });
            key = "";
            go(["campaigns", c.id]);
        } catch (error) {
            refuse(error);
            submit.disabled = false;
        }
    }

    ctx.title("New campaign");
    ctx.onLeave(() => clearTimeout(timer));
    fill(
        ctx.root,
        h("h1", {}, ctx.query.from ? "Clone with changes" : "New campaign"),
        h(
            "p",
            { class: "sub" },
            "The service checks the campaign as you write it. Nothing runs before you start it.",
        ),
        h(
            "form",
            { onsubmit: send },
            h(
                "div",
                { class: "grid" },
                h(
                    "div",
                    { class: "w7" },
                    groups.map(([title, list_]) =>
                        h(
                            "fieldset",
                            {},
                            h("legend", {}, title),
                            h(
                                "div",
                                { class: "fields" },
                                list_.map((f) => f.element),
                            ),
                        ),
                    ),
                ),
                h(
                    "div",
                    { class: "w5" },
                    verdict,
                    rest,
                    h("p", { class: "actions" }, submit),
                    h("br"),
                    panel(
                        "As JSON",
                        { note: "The same campaign; edit it here or at the left." },
                        text,
                    ),
                ),
            ),
        ),
    );
    change(spec);
}

function layoutText(layout) {
    const of = layout?.layout ?? layout ?? {};
    return ["world", "tp", "pp", "ep", "dp", "micro_batch", "zero"]
        .filter((k) => of[k] !== undefined)
        .map((k) => `${k} ${of[k]}`)
        .join(", ");
}

// FNV-1a, 32 bits: the same form sent twice must have the same key, a changed one another.
function hash(text_) {
    let x = 0x811c9dc5;
    for (let i = 0; i < text_.length; i++) x = Math.imul(x ^ text_.charCodeAt(i), 0x01000193) >>> 0;
    return x.toString(16);
}
