// What was asked for: notes and tags, which may change, and the campaign as it was submitted, which may not.

import { campaignPath, getTagged, patch } from "../lib/api.js";
import { announce, fill, h, whileBusy } from "../lib/dom.js";
import { saveText } from "../lib/download.js";
import { failure, notice, pairs, panel } from "../parts/parts.js";
import { prettyJson, time } from "../lib/format.js";

function textsOf(c) {
    return { name: c.name.trim(), notes: c.notes ?? "", tags: c.tags ?? [] };
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

function foreign(theirs) {
    return notice(
        "bad",
        h("p", {}, "Someone else has changed this meanwhile. Save again to replace what they wrote:"),
        pairs([
            ["Name", h("bdi", {}, theirs.name)],
            ["Notes", h("bdi", {}, theirs.notes || "–")],
            ["Tags", h("bdi", {}, theirs.tags.join(" ") || "–")],
        ]),
    );
}

function notesForm(page) {
    const name = h("input", { required: true });
    const notes = h("textarea", { rows: "5" });
    const tags = h("input");
    const answer = h("div");
    const button = h("button", { class: "primary" }, "Save");
    let base = null; // what the service had when the fields were filled
    let shown = null; // what they made of it

    const written = () => ({
        name: name.value.trim(),
        notes: notes.value,
        tags: tags.value.split(/[\s,]+/).filter(Boolean),
    });

    function show(c) {
        base = textsOf(c);
        name.value = base.name;
        notes.value = base.notes;
        tags.value = base.tags.join(" ");
        shown = written();
    }

    /** What was typed: only that is sent. */
    const changes = () =>
        Object.fromEntries(Object.entries(written()).filter(([k, v]) => !same(v, shown[k])));

    // What somebody else wrote is shown, unless that would take away what is being typed here.
    function follow(c) {
        if (same(written(), shown) && !same(textsOf(c), base)) show(c);
    }

    async function save() {
        try {
            // The tag of what the service has now: two people who write at once must not lose each other's words.
            const [now, tag] = await getTagged(campaignPath(page.id), page.ctx.signal);
            const theirs = textsOf(now);
            if (!same(theirs, base)) {
                base = theirs;
                fill(answer, foreign(theirs));
                return;
            }
            const change = changes();
            const saved = Object.keys(change).length
                ? ((await patch(campaignPath(page.id), change, tag)) ?? { ...now, ...change })
                : now;
            show(saved);
            page.setCampaign(saved);
            fill(answer, h("p", { class: "good-text", role: "status" }, "Saved."));
            announce("saved");
        } catch (error) {
            if (error.name !== "AbortError") fill(answer, failure(error));
        }
    }

    show(page.campaign());
    page.readers.add(follow);
    return h(
        "form",
        {
            onsubmit: (event) => {
                event.preventDefault();
                whileBusy(button, save);
            },
        },
        h("label", { class: "field" }, h("span", {}, "Name"), name),
        h("label", { class: "field" }, h("span", {}, "Notes"), notes),
        h(
            "label",
            { class: "field" },
            h("span", {}, "Tags, separated by spaces"),
            tags,
        ),
        h("p", { class: "filters" }, button),
        answer,
    );
}

export const settingsTab = {
    key: "settings",
    title: "Settings",
    open(page, body) {
        const c = page.campaign();
        const text = prettyJson(c.spec ?? {});
        const whole = prettyJson({
            model: c.model,
            cluster: c.cluster,
            workload: c.workload,
            space: c.space,
        });
        fill(
            body,
            h(
                "div",
                { class: "grid" },
                panel(
                    "Name, notes and tags",
                    { className: "w4" },
                    notesForm(page),
                    pairs([
                        ["Identifier", h("code", {}, c.id)],
                        ["Owner", c.owner ?? "–"],
                        ["Created", time(c.created)],
                        ["Objective", c.objective ?? "–"],
                        ["Launcher", c.launcher ?? "–"],
                        ["Trainer", c.trainer ?? "–"],
                    ]),
                ),
                panel(
                    "As submitted",
                    {
                        className: "w4",
                        tools: [
                            h(
                                "button",
                                {
                                    type: "button",
                                    class: "quiet",
                                    onclick: () =>
                                        saveText(text, `campaign-${c.id}.json`, "application/json"),
                                },
                                "Download",
                            ),
                        ],
                    },
                    h("pre", { class: "code", tabindex: "0" }, text),
                ),
                panel(
                    "With every default filled in",
                    { className: "w4" },
                    h("pre", { class: "code", tabindex: "0" }, whole),
                ),
            ),
        );
    },
};
