// What was asked for: notes and tags, which may change, and the campaign as it was submitted, which may not.

import { campaignPath, getTagged, patch } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { saveText } from "../lib/download.js";
import { announce, failure, pairs, panel } from "../parts/parts.js";
import { prettyJson, time } from "../lib/format.js";

function notesForm(page) {
    const notes = h("textarea", { rows: "5", value: page.campaign().notes ?? "" });
    const tags = h("input", {
        value: (page.campaign().tags ?? []).join(" "),
        "aria-describedby": "tags-help",
    });
    const answer = h("div");

    async function save(event) {
        event.preventDefault();
        const change = { notes: notes.value, tags: tags.value.split(/[\s,]+/).filter(Boolean) };
        try {
            // The tag of what the service has now: two people who write at once must not lose each other's words.
            const [now, tag] = await getTagged(campaignPath(page.id), page.ctx.signal);
            const foreign = now.notes !== page.campaign().notes;
            if (foreign) {
                page.setCampaign(now);
                throw new Error(
                    "Someone else has changed the notes meanwhile. Theirs: " + now.notes,
                );
            }
            const c = await patch(campaignPath(page.id), change, tag);
            page.setCampaign(c ?? { ...now, ...change });
            fill(answer, h("p", { class: "good-text", role: "status" }, "Saved."));
            announce("saved");
        } catch (error) {
            fill(answer, failure(error));
        }
    }

    return h(
        "form",
        { onsubmit: save },
        h("label", { class: "field" }, h("span", {}, "Notes"), notes),
        h(
            "label",
            { class: "field" },
            h("span", { id: "tags-help" }, "Tags, separated by spaces"),
            tags,
        ),
        h("p", { class: "filters" }, h("button", { class: "primary" }, "Save")),
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
                    "Notes and tags",
                    { className: "w4" },
                    notesForm(page),
                    pairs([
                        ["Name", h("bdi", {}, c.name)],
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
