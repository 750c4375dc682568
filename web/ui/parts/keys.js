// Keyboard shortcuts. They can be switched off, since speech input and wandering fingers press letters too.

import { h } from "../lib/dom.js";
import { local } from "../lib/store.js";
import { toggleTheme } from "./shell.js";

const OFF = "partune-shortcuts-off";
const HELP = [
    ["g c", "campaigns"],
    ["g n", "new campaign"],
    ["g p", "plan"],
    ["g j", "projection"],
    ["g o", "compare"],
    ["/", "first filter or field of the page"],
    ["[ and ]", "previous and next trial"],
    ["t", "switch between light and dark"],
    ["?", "show this list"],
];
const PLACES = { c: "campaigns", n: "new", p: "plan", j: "project", o: "compare" };

function isTyping(target) {
    return target.closest?.("input, select, textarea, [contenteditable], dialog") !== null;
}

/** The list of shortcuts, and the switch. */
export function help() {
    const box = h("input", {
        type: "checkbox",
        checked: !local.get(OFF),
        onchange: () => {
            if (box.checked) local.remove(OFF);
            else local.set(OFF, "1");
        },
    });
    const dialog = h(
        "dialog",
        { "aria-label": "Keyboard" },
        h("h2", {}, "Keyboard"),
        h(
            "dl",
            { class: "pairs" },
            HELP.map(([k, what]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, what)]),
        ),
        h("p", {}, h("label", {}, box, "shortcuts are on")),
        h("form", { method: "dialog", class: "actions" }, h("button", {}, "Close")),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}

function focusFirstField() {
    const fields = document.querySelectorAll("main input:not([type=checkbox]), main select");
    [...fields].find((field) => field.checkVisibility())?.focus();
}

const press = (key) => document.querySelector(`[data-key=${key}]`)?.click();

const ACTIONS = {
    "?": help,
    t: toggleTheme,
    "[": () => press("before"),
    "]": () => press("after"),
    "/": focusFirstField,
};
const LEADER_MS = 1200; // within which a second key follows "g"

const isShortcut = (event) =>
    !event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(event.target) && !local.get(OFF);

export function shortcuts({ go }) {
    let leader = -Infinity;

    document.addEventListener("keydown", (event) => {
        if (!isShortcut(event)) return;
        const { key } = event;
        const second = performance.now() - leader < LEADER_MS && PLACES[key];
        if (second) leader = -Infinity;
        else if (key === "g") leader = performance.now();
        if (second) go([second]);
        else if (Object.hasOwn(ACTIONS, key)) ACTIONS[key]();
        if (key === "/") event.preventDefault();
    });
}
