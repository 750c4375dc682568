// A new campaign. The form edits a JSON object that is shown next to it and may be edited there just as well; after
// every change the service is asked what it makes of it, so nobody submits something that will be refused.

import { ApiError } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, prettyJson, rate, seconds } from "../lib/format.js";
import { go } from "../lib/router.js";
import { BASELINE_RULES, MEMORY_CLASSES, MEMORY_HELP, ordered } from "../lib/words.js";
import { failure, notice, pairs, panel } from "../parts/parts.js";
import {
    PRECISIONS,
    boundField,
    offers,
    presetField,
    problemsOf,
    put,
    showProblems,
    stackField,
} from "../parts/job.js";
import { checkLayout, dryRun, firstSpec, layoutText, sender } from "./new-model.js";

const CHECK_MS = 400;

const BASELINES = [
    ["", "default"],
    ["naive", "naive (largest dp)"],
];
const IMPORTERS = [
    ["", "–"],
    ["megatron", "Megatron-LM: script or arguments"],
    ["deepspeed", "DeepSpeed: JSON"],
    ["torchtitan", "torchtitan: TOML or Python"],
];
const METHODS = [
    ["", "bayes"],
    ["random", "random"],
    ["grid", "grid"],
];
const OBJECTIVES = [
    ["", "tokens/s"],
    ["tokens_per_s_per_device", "tokens/s per device"],
    ["tokens_per_joule", "tokens/J"],
    ["tokens_per_cost", "tokens for a price"],
];

// [pointer, title, type, more] of each field but those of the presets.
const WORK_FIELDS = [
    [
        "/workload/global_batch",
        "Global batch (sequences)",
        "choices",
        { help: "several, as in 256, 512, are searched together" },
    ],
    ["/workload/seq", "Sequence (tokens)", "number", { placeholder: "as in the model" }],
];
const SPACE_FIELDS = [
    ["/space/world", "Ranks", "numbers", { placeholder: "all devices" }],
    ["/space/tp", "tp", "numbers"],
    ["/space/pp", "pp", "numbers"],
    ["/space/ep", "ep", "numbers"],
    ["/space/micro_batch", "micro_batch", "numbers"],
    ["/space/zero", "zero", "numbers"],
    ["/space/recompute", "recompute", "list"],
];
const BY_DEFAULT = { placeholder: "default" };
const SEARCH_FIELDS = [
    [
        "/baseline",
        "Baseline",
        "text",
        {
            options: BASELINES,
            help:
                "what the winner is compared with: a competent engineer's starting point (default), the largest " +
                "data parallelism that fits (naive), your job script (below), or a layout of your own (edit the JSON)",
        },
    ],
    ["/budget/trials", "Trials", "number"],
    ["/budget/wall_s", "Time (s)", "number", { placeholder: "no limit" }],
    [
        "/budget/device_s",
        "Device time (s)",
        "number",
        { placeholder: "no limit", help: "devices times seconds" },
    ],
    ["/trial/max_steps", "Max steps per trial", "number", BY_DEFAULT],
    ["/trial/timeout_s", "Trial time limit (s)", "number", BY_DEFAULT],
    ["/search/method", "Method", "text", { options: METHODS }],
    ["/search/seed", "Seed", "number", { placeholder: "random" }],
    ["/search/parallel", "Parallel trials", "number", BY_DEFAULT],
    ["/objective", "Objective", "text", { options: OBJECTIVES }],
];
const SCRIPT_FIELDS = [
    ["/baseline/import", "Read as", "text", { options: IMPORTERS }],
    ["/baseline/world", "Ranks", "number", { placeholder: "all devices" }],
    ["/baseline/text", "Script or configuration", "text", { rows: 4 }],
];
const PEOPLE_FIELDS = [
    ["/tags", "Tags", "list"],
    ["/notes", "Notes", "text"],
    ["/priority", "Priority (-100 to 100)", "number", { placeholder: "0" }],
];

/** The fields in groups: [[title, fields], …]. */
function sections(list, edit) {
    const bound = ([pointer, title, type, more]) =>
        boundField(pointer, { title, type, ...more }, edit);
    const datasets = list.datasets.map((name) => [name, name]);
    return [
        [
            "Job",
            [
                bound(["/name", "Name", "text"]),
                presetField("model", list.models, edit),
                presetField("cluster", list.clusters, edit),
                bound(["/trainer", "Trainer", "text", { placeholder: "partune" }]),
                stackField(list.stacks, edit),
            ],
        ],
        [
            "Workload",
            [
                ...WORK_FIELDS.map(bound),
                bound(["/workload/data", "Data set", "text", { options: datasets }]),
                bound(["/workload/precision", "Precision", "text", { options: PRECISIONS }]),
            ],
        ],
        ["Space (empty: every value that the trainer supports)", SPACE_FIELDS.map(bound)],
        ["Budget and search", SEARCH_FIELDS.map(bound)],
        ["Today's job script as the baseline", SCRIPT_FIELDS.map(bound)],
        ["Tags, notes, priority", PEOPLE_FIELDS.map(bound)],
    ];
}

function memoryByClass(memory) {
    const classes = ordered(memory ?? {}, MEMORY_CLASSES).filter(
        (name) => !["total", "rank", "host"].includes(name) && memory[name] > 0,
    );
    return (
        classes.length > 0 &&
        classes.map((name, i) => [
            i ? ", " : "",
            h("span", { title: MEMORY_HELP[name] ?? null }, `${name} ${bytes(memory[name])}`),
        ])
    );
}

/** Memory and time of the first trial, so that a job which cannot fit is seen before it is submitted. */
function baselineView({ memory, fits, cost }) {
    const classes = memoryByClass(memory);
    const total = `${bytes(memory?.total)} on the worst rank`;
    return pairs([
        ["Baseline memory", fits === false ? `${total}: does not fit` : total],
        classes && ["of which", classes],
        memory?.host > 0 && ["In host memory", `${bytes(memory.host)} a rank`],
        cost?.tokens_per_s && ["Baseline throughput", rate(cost.tokens_per_s)],
    ]);
}

/** What the service would make of the campaign; MORE is shown below. */
function acceptance(answer, more) {
    const atLeast = answer.exact === false ? "at least " : "";
    const baseline = answer.baseline?.text ?? layoutText(answer.baseline);
    const rule = [BASELINE_RULES[answer.baseline_rule], answer.baseline_note];
    return notice(
        "good",
        pairs([
            ["Legal layouts", `${atLeast}${count(answer.legal)}`],
            answer.fitting !== undefined && ["of which fit", `${atLeast}${count(answer.fitting)}`],
            answer.reason && ["Note", answer.reason],
            ["Expected trials", count(answer.expected_trials)],
            ["Expected time", seconds(answer.expected_s)],
            ["Baseline", h("span", { class: "mono" }, baseline)],
            ["Baseline rule", rule.filter(Boolean).join(", ")],
        ]),
        more,
    );
}

/** PROBLEMS are those that belong to no field. */
function refusal(problems) {
    const line = ({ pointer, detail }) =>
        h("li", {}, pointer && h("code", {}, pointer), pointer ? " " : "", detail);
    return notice(
        "bad",
        h("p", {}, "This campaign would be rejected."),
        problems.length > 0 && h("ul", {}, problems.map(line)),
    );
}

/** The page's elements: {element, verdict, rest, text, submit}. */
function formView(groups, { onText, onSubmit }) {
    const verdict = h("div", { "aria-live": "polite" });
    const rest = h("div", { role: "alert" });
    const text = h("textarea", {
        rows: "22",
        spellcheck: "false",
        "aria-label": "the campaign as JSON",
        oninput: onText,
    });
    const submit = h("button", { class: "primary", disabled: true }, "Start the campaign");
    const fieldset = ([title, fields]) =>
        h(
            "fieldset",
            {},
            h("legend", {}, title),
            h(
                "div",
                { class: "fields" },
                fields.map((each) => each.element),
            ),
        );
    const json = panel(
        "As JSON",
        { note: "The same campaign; edit it here or in the form." },
        text,
    );
    const actions = h("p", { class: "actions" }, submit);
    const element = h(
        "form",
        { onsubmit: onSubmit },
        h(
            "div",
            { class: "grid" },
            h("div", { class: "w7" }, groups.map(fieldset)),
            h("div", { class: "w5" }, verdict, rest, actions, h("br"), json),
        ),
    );
    return { element, verdict, rest, text, submit };
}

class Form {
    #ctx;
    #spec;
    #fields;
    #view;
    #send = sender();
    #timer = 0;
    #checks = 0;

    constructor(ctx, list) {
        this.#ctx = ctx;
        const groups = sections(list, (pointer, value) =>
            this.change(put(this.#spec, pointer, value === "" ? undefined : value)),
        );
        this.#fields = groups.flatMap(([, fields]) => fields);
        this.#view = formView(groups, {
            onText: () => this.#readText(),
            onSubmit: (event) => {
                event.preventDefault();
                this.#submit();
            },
        });
        ctx.onLeave(() => clearTimeout(this.#timer));
    }

    get element() {
        return this.#view.element;
    }

    /** Take SPEC as the campaign. */
    change(spec) {
        this.#view.text.value = prettyJson(spec);
        this.#take(spec);
    }

    #take(spec) {
        this.#spec = spec;
        this.#fields.forEach((each) => each.show(spec));
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.#check(), CHECK_MS);
    }

    #readText() {
        const { text, rest, submit } = this.#view;
        try {
            const spec = JSON.parse(text.value);
            text.removeAttribute("aria-invalid");
            fill(rest);
            this.#take(spec);
        } catch (error) {
            text.setAttribute("aria-invalid", "true");
            submit.disabled = true;
            fill(rest, notice("bad", `Invalid JSON: ${error.message}`));
        }
    }

    #refuse(error) {
        this.#view.submit.disabled = true;
        fill(
            this.#view.verdict,
            error instanceof ApiError
                ? refusal(showProblems(this.#fields, problemsOf(error)))
                : failure(error, () => this.#check()),
        );
    }

    async #check() {
        this.#checks += 1;
        const mine = this.#checks;
        const asked = this.#spec;
        const { signal } = this.#ctx;
        try {
            const answer = await dryRun(asked, signal);
            if (mine !== this.#checks) return;
            this.#fields.forEach((each) => each.fail(""));
            this.#view.submit.disabled = false;
            const more = h("div", { class: "soft" }, "…");
            fill(this.#view.verdict, acceptance(answer, more));
            const layout = answer.baseline?.layout ?? answer.baseline;
            const check = layout && (await checkLayout(asked, layout, signal).catch(() => null));
            fill(more, check && baselineView(check));
        } catch (error) {
            if (error.name !== "AbortError" && mine === this.#checks) this.#refuse(error);
        }
    }

    async #submit() {
        const { submit } = this.#view;
        submit.disabled = true;
        try {
            const campaign = await this.#send(this.#spec);
            go(["campaigns", campaign.id]);
        } catch (error) {
            this.#refuse(error);
            submit.disabled = false;
        }
    }
}

export async function render(ctx) {
    const list = await offers(ctx.signal);
    const spec = await firstSpec(ctx, list);
    const form = new Form(ctx, list);
    ctx.title("New campaign");
    fill(
        ctx.root,
        h("h1", {}, ctx.query.from ? "Clone and edit" : "New campaign"),
        h(
            "p",
            { class: "sub" },
            "The campaign is validated as you edit. Nothing runs until you start it.",
        ),
        form.element,
    );
    form.change(spec);
}
