// The fields that describe a job (model, cluster, workload), shared by the plan and the form of a new campaign.
//
// A form edits one JSON object. Each field is bound to a JSON pointer of it, so that a refusal that names a pointer can be
// shown at its field.

import { get } from "../lib/api.js";
import { h, uniqueId } from "../lib/dom.js";
import { session } from "../lib/store.js";

export function at(object, pointer) {
    return pointer
        .split("/")
        .slice(1)
        .reduce((o, k) => (o === null || o === undefined ? undefined : o[k]), object);
}

/** Set or (undefined) remove what POINTER names; objects on the way are made, empty ones left behind are removed. */
export function put(object, pointer, value) {
    const keys = pointer.split("/").slice(1);
    const walk = (o, i) => {
        const copy = o && typeof o === "object" && !Array.isArray(o) ? { ...o } : {};
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

const TYPES = {
    text: [(v) => v ?? "", (s) => (s.trim() === "" ? undefined : s.trim())],
    number: [
        (v) => ((v ?? "") === "" ? "" : String(v)),
        (s) => (s.trim() === "" ? undefined : Number(s)),
    ],
    list: [
        (v) => (Array.isArray(v) ? v.join(" ") : ""),
        (s) => {
            const items = s.split(/[\s,]+/).filter(Boolean);
            return items.length ? items : undefined;
        },
    ],
    numbers: [
        (v) => (Array.isArray(v) ? v.join(" ") : ""),
        (s) => {
            const items = s.split(/[\s,]+/).filter(Boolean);
            return items.length
                ? items.map((x) => (Number.isNaN(Number(x)) ? x : Number(x)))
                : undefined;
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

/** Show the problems of a refusal at the fields they are about; returns what belongs to no field. */
export function showProblems(fields, problems) {
    fields.forEach((f) => f.fail(""));
    return problems.filter((p) => {
        const best = fields
            .filter(
                (f) =>
                    p.pointer && (p.pointer === f.pointer || p.pointer.startsWith(`${f.pointer}/`)),
            )
            .sort((a, b) => b.pointer.length - a.pointer.length)[0];
        best?.fail(p.detail);
        return !best;
    });
}

/** The refusal ERROR as a list of {pointer, detail}. */
export function problemsOf(error) {
    if (error.rules?.length)
        return error.rules.map((r) => ({
            pointer: error.pointer,
            detail: `${r.rule}: ${r.detail}`,
        }));
    return [{ pointer: error.pointer, detail: error.message }];
}

const nameOf = (item) => (typeof item === "string" ? item : item.name);

async function names(path, signal) {
    const list = await get(path, { page_size: 1000 }, signal);
    return (list.items ?? list).map(nameOf);
}

/** The names that the service offers: {models, clusters, datasets}. */
export async function offers(signal) {
    const [models, clusters, datasets] = await Promise.all([
        names("v1/presets/models", signal),
        names("v1/presets/clusters", signal),
        names("v1/datasets", signal),
    ]);
    return {
        models,
        clusters: ["local", ...clusters.filter((c) => c !== "local")],
        datasets: datasets.includes("synthetic") ? datasets : ["synthetic", ...datasets],
    };
}

/**
 * Choice of a preset by name, or an object written out. KIND is "model" or "cluster". For a cluster a number of nodes goes
 * with the name.
 */
export function presetField(kind, list, edit) {
    const pointer = `/${kind}`;
    const own = "its own …";
    const select = h(
        "select",
        { id: uniqueId(kind) },
        [...list, own].map((n) => h("option", { value: n }, n)),
    );
    const nodes = h("input", {
        inputmode: "numeric",
        placeholder: "as in the profile",
        "aria-label": "nodes",
    });
    const text = h("textarea", { rows: "8", spellcheck: "false", "aria-label": `${kind} as JSON` });
    const error = h("span", { class: "field-error", role: "status" });
    const nodesField = h("label", { class: "field" }, h("span", {}, "Nodes"), nodes);
    let shown = null;

    function fail(message) {
        error.textContent = message;
        (select.value === own ? text : select).toggleAttribute("aria-invalid", message !== "");
        if (message) (select.value === own ? text : select).setAttribute("aria-invalid", "true");
    }

    function changed() {
        const custom = select.value === own;
        text.hidden = !custom;
        nodesField.hidden = kind !== "cluster" || custom || select.value === "local";
        if (!custom) {
            const n = nodes.value.trim();
            edit(
                pointer,
                kind === "cluster" && n !== "" && select.value !== "local"
                    ? { profile: select.value, nodes: Number(n) }
                    : select.value,
            );
            fail("");
            return;
        }
        if (!text.value.trim())
            text.value =
                shown && typeof shown === "object" ? JSON.stringify(shown, null, 2) : "{\n}";
        try {
            edit(pointer, JSON.parse(text.value));
            fail("");
        } catch (e) {
            fail(`not JSON yet: ${e.message}`);
        }
    }
    for (const input of [select, nodes, text]) input.addEventListener("input", changed);

    return {
        pointer,
        element: h(
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
        ),
        show(object) {
            shown = at(object, pointer);
            const profile = typeof shown === "string" ? shown : shown?.profile;
            if (shown === undefined) select.value = kind === "cluster" ? "local" : (list[0] ?? own);
            else select.value = profile && list.includes(profile) ? profile : own;
            if (profile && document.activeElement !== nodes) nodes.value = shown.nodes ?? "";
            if (select.value === own && document.activeElement !== text)
                text.value = JSON.stringify(shown, null, 2);
            text.hidden = select.value !== own;
            nodesField.hidden =
                kind !== "cluster" || select.value === own || select.value === "local";
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
