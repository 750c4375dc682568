// The fields that describe a job (model, cluster, workload), shared by the plan and the form of a new campaign.
//
// A form edits one JSON object. Each field is bound to a JSON pointer of it, so that a refusal that names a pointer can
// be shown at its field.

import { get } from "../lib/api.js";
import { h, uniqueId, whileBusy } from "../lib/dom.js";
import { WORD_ORDER } from "../lib/words.js";
import { session } from "../lib/store.js";
import { field } from "./parts.js";

export function at(object, pointer) {
    return pointer
        .split("/")
        .slice(1)
        .reduce((o, k) => (o === null || o === undefined ? undefined : o[k]), object);
}

/** Set or (undefined) remove what POINTER names; objects on the way are made, empty ones left behind are removed. */
export function put(object, pointer, value) {
    const keys = pointer.split("/").slice(1);
    const walk = (old, i) => {
        const copy = old && typeof old === "object" && !Array.isArray(old) ? { ...old } : {};
        if (i === keys.length - 1) {
            if (value === undefined) delete copy[keys[i]];
            else copy[keys[i]] = value;
            return copy;
        }
        const inner = walk(copy[keys[i]], i + 1);
        if (Object.keys(inner).length) copy[keys[i]] = inner;
        else delete copy[keys[i]];
        return copy;
    };
    return walk(object, 0);
}

/** Options of a field for the precision of a workload. */
export const PRECISIONS = [
    ["", "default"],
    ...WORD_ORDER.precision.map((word) => [word, word]),
];

const TYPES = {
    text: [(v) => v ?? "", (s) => (s.trim() === "" ? undefined : s.trim())],
    number: [
        (v) => ((v ?? "") === "" ? "" : String(v)),
        (s) => (s.trim() === "" ? undefined : Number(s)),
    ],
    list: [
        (v) => (Array.isArray(v) ? v.join(" ") : ""),
        (text) => {
            const items = text.split(/[\s,]+/).filter(Boolean);
            return items.length ? items : undefined;
        },
    ],
    numbers: [
        (v) => (Array.isArray(v) ? v.join(" ") : ""),
        (text) => {
            const items = text.split(/[\s,]+/).filter(Boolean);
            return items.length
                ? items.map((x) => (Number.isNaN(Number(x)) ? x : Number(x)))
                : undefined;
        },
    ],
    // A number, or several: one is written as such.
    choices: [
        (v) => (Array.isArray(v) ? v.join(", ") : String(v ?? "")),
        (text) => {
            const items = text.split(/[\s,]+/).filter(Boolean);
            const numbers = items.map((x) => (Number.isNaN(Number(x)) ? x : Number(x)));
            return numbers.length > 1 ? numbers : numbers[0];
        },
    ],
    json: [
        (v) => (v === undefined ? "" : JSON.stringify(v)),
        (s) => (s.trim() === "" ? undefined : JSON.parse(s)),
    ],
};

/**
 * A field bound to POINTER. SPEC: {title, type, help, placeholder, options, input attributes}. EDIT(pointer, value) is
 * called when it changes. Returns {element, pointer, show(object), fail(text)}.
 */
export function boundField(pointer, spec, edit) {
    const id = uniqueId("field");
    const [write, read] = TYPES[spec.type ?? "text"];
    const error = h("span", { class: "field-error", id: `${id}-error` });
    const input = spec.options
        ? h(
              "select",
              { id },
              spec.options.map(([value, text]) => h("option", { value }, text)),
          )
        : h(spec.rows ? "textarea" : "input", {
              id,
              rows: spec.rows,
              placeholder: spec.placeholder,
              inputmode: spec.type === "number" ? "decimal" : null,
              autocomplete: "off",
              spellcheck: "false",
          });
    input.setAttribute("aria-describedby", `${id}-error`);
    input.addEventListener("input", () => {
        try {
            const value = read(input.value);
            edit(pointer, Number.isNaN(value) ? input.value : value);
            fail("");
        } catch (e) {
            fail(e.message);
        }
    });

    function fail(text) {
        error.textContent = text;
        if (text) input.setAttribute("aria-invalid", "true");
        else input.removeAttribute("aria-invalid");
    }

    return {
        pointer,
        element: h(
            "label",
            { class: "field", for: id, title: spec.help },
            h("span", {}, spec.title),
            input,
            error,
        ),
        show(object) {
            if (document.activeElement !== input) input.value = write(at(object, pointer));
        },
        fail,
        focus: () => input.focus(),
    };
}

/** A form titled LEGEND of field ELEMENTS, whose button SUBMIT calls RUN. */
export function submitForm(legend, elements, submit, run) {
    const onsubmit = (event) => {
        event.preventDefault();
        whileBusy(submit, run);
    };
    return h(
        "form",
        { onsubmit },
        h(
            "fieldset",
            {},
            h("legend", {}, legend),
            h("div", { class: "fields" }, elements),
            h("p", { class: "actions" }, submit),
        ),
    );
}

/** Show the problems of a refusal at the fields they are about; returns what belongs to no field. */
export function showProblems(fields, problems) {
    fields.forEach((each) => each.fail(""));
    return problems.filter(({ pointer, detail }) => {
        const owners = fields.filter(
            (each) => pointer === each.pointer || pointer?.startsWith(`${each.pointer}/`),
        );
        const [best] = owners.sort((a, b) => b.pointer.length - a.pointer.length);
        best?.fail(detail);
        return !best;
    });
}

/** The refusal ERROR as a list of {pointer, detail}. */
export function problemsOf(error) {
    if (error.rules?.length)
        return error.rules.map(({ rule, detail }) => ({
            pointer: error.pointer,
            detail: `${rule}: ${detail}`,
        }));
    return [{ pointer: error.pointer, detail: error.message }];
}

const nameOf = (item) => (typeof item === "string" ? item : item.name);

async function names(path, signal) {
    const list = await get(path, { page_size: 1000 }, signal);
    return (list.items ?? list).map(nameOf);
}

/** The names that the service offers: {models, clusters, datasets, stacks}. */
export async function offers(signal) {
    const [models, clusters, datasets, stacks] = await Promise.all([
        names("v1/presets/models", signal),
        names("v1/presets/clusters", signal),
        names("v1/datasets", signal),
        names("v1/presets/stacks", signal),
    ]);
    return {
        models,
        clusters: ["local", ...clusters.filter((c) => c !== "local")],
        datasets: datasets.includes("synthetic") ? datasets : ["synthetic", ...datasets],
        stacks,
    };
}

/** The field that chooses one of STACKS, how well the trainer runs. */
export function stackField(stacks, edit) {
    const spec = {
        title: "Stack",
        options: [["", "as shipped"], ...stacks.map((name) => [name, name])],
        help: "how well the trainer runs on any machine; partune calibrate-stack learns one from measured rows",
    };
    return boundField("/stack", spec, edit);
}

const OWN = "custom (JSON) …";
const written = (object) => JSON.stringify(object, null, 2);

const profileOf = (preset) => (typeof preset === "string" ? preset : preset?.profile);

/** The inputs of a preset: {select, nodes, nodesField, text, error, element}. */
function presetView(kind, list) {
    const select = h(
        "select",
        { id: uniqueId(kind) },
        [...list, OWN].map((name) => h("option", { value: name }, name)),
    );
    const nodes = h("input", {
        inputmode: "numeric",
        placeholder: "as in the profile",
        "aria-label": "nodes",
    });
    const text = h("textarea", { rows: "8", spellcheck: "false", "aria-label": `${kind} as JSON` });
    const error = h("span", { class: "field-error", role: "status" });
    const nodesField = field("Nodes", nodes);
    const element = h(
        "div",
        { class: "field" },
        h(
            "label",
            { class: "field", for: select.id },
            h("span", {}, kind === "model" ? "Model" : "Cluster"),
            select,
        ),
        kind === "cluster" && nodesField,
        text,
        error,
    );
    return { select, nodes, nodesField, text, error, element };
}

/**
 * Choice of a preset by name, or an object written out. KIND is "model" or "cluster". For a cluster a number of nodes
 * goes with the name.
 */
export function presetField(kind, list, edit) {
    const pointer = `/${kind}`;
    const { select, nodes, nodesField, text, error, element } = presetView(kind, list);
    const isOwn = () => select.value === OWN;
    const hasNodes = () => kind === "cluster" && !isOwn() && select.value !== "local";
    let shown = null;

    function fail(message) {
        const input = isOwn() ? text : select;
        error.textContent = message;
        if (message) input.setAttribute("aria-invalid", "true");
        else input.removeAttribute("aria-invalid");
    }

    function reveal() {
        text.hidden = !isOwn();
        nodesField.hidden = !hasNodes();
    }

    function readPreset() {
        const count = nodes.value.trim();
        const sized = hasNodes() && count !== "";
        edit(pointer, sized ? { profile: select.value, nodes: Number(count) } : select.value);
        fail("");
    }

    function readOwn() {
        if (!text.value.trim()) text.value = shown instanceof Object ? written(shown) : "{\n}";
        try {
            edit(pointer, JSON.parse(text.value));
            fail("");
        } catch (problem) {
            fail(`invalid JSON: ${problem.message}`);
        }
    }

    function changed() {
        reveal();
        if (isOwn()) readOwn();
        else readPreset();
    }
    for (const input of [select, nodes, text]) input.addEventListener("input", changed);
    return {
        pointer,
        element,
        show(object) {
            shown = at(object, pointer);
            const profile = profileOf(shown);
            const first = kind === "cluster" ? "local" : (list[0] ?? OWN);
            const known = list.includes(profile) ? profile : OWN;
            select.value = shown === undefined ? first : known;
            if (profile && document.activeElement !== nodes) nodes.value = shown.nodes ?? "";
            if (isOwn() && document.activeElement !== text) text.value = written(shown);
            reveal();
        },
        fail,
        focus: () => select.focus(),
    };
}

const DRAFT = "partune-draft";

/** Hand a job from one page to another. */
export function keepDraft(spec) {
    session.set(DRAFT, JSON.stringify(spec));
}

export function takeDraft() {
    const text = session.get(DRAFT);
    session.remove(DRAFT);
    return text ? JSON.parse(text) : null;
}
