// What was asked for: notes and tags, which may change, and the campaign as it was submitted, which may not.

import { campaignPath, getTagged, patch } from "../lib/api.js";
import { announce, fill, h, whileBusy } from "../lib/dom.js";
import { saveText } from "../lib/download.js";
import { button, failure, field, notice, pairs, panel } from "../parts/parts.js";
import { prettyJson, time } from "../lib/format.js";

function textsOf(campaign) {
    return { name: campaign.name.trim(), notes: campaign.notes ?? "", tags: campaign.tags ?? [] };
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

function foreign(theirs) {
    return notice(
        "bad",
        h("p", {}, "Someone else changed this. Save again to overwrite their version:"),
        pairs([
            ["Name", h("bdi", {}, theirs.name)],
            ["Notes", h("bdi", {}, theirs.notes || "–")],
            ["Tags", h("bdi", {}, theirs.tags.join(" ") || "–")],
        ]),
    );
}

/** The inputs of a campaign's texts: {element, read(), write(texts), answer}. SAVE() is called by the button. */
function textInputs(save) {
    const name = h("input", { required: true });
    const notes = h("textarea", { rows: "5" });
    const tags = h("input");
    const answer = h("div");
    const submit = h("button", { class: "primary" }, "Save");
    const onsubmit = (event) => {
        event.preventDefault();
        whileBusy(submit, save);
    };
    const element = h(
        "form",
        { onsubmit },
        field("Name", name),
        field("Notes", notes),
        field("Tags, separated by spaces", tags),
        h("p", { class: "filters" }, submit),
        answer,
    );
    return {
        element,
        answer,
        read: () => ({
            name: name.value.trim(),
            notes: notes.value,
            tags: tags.value.split(/[\s,]+/).filter(Boolean),
        }),
        write(texts) {
            name.value = texts.name;
            notes.value = texts.notes;
            tags.value = texts.tags.join(" ");
        },
    };
}

function notesForm(page) {
    const inputs = textInputs(save);
    let base = null; // what the service had when the fields were filled
    let shown = null; // what they made of it

    function show(campaign) {
        base = textsOf(campaign);
        inputs.write(base);
        shown = inputs.read();
    }

    /** What was typed: only that is sent. */
    const changes = () =>
        Object.fromEntries(
            Object.entries(inputs.read()).filter(([key, value]) => !same(value, shown[key])),
        );

    // What somebody else wrote is shown, unless that would take away what is being typed here.
    function follow(campaign) {
        if (same(inputs.read(), shown) && !same(textsOf(campaign), base)) show(campaign);
    }

    /** Send what was typed: the campaign as it is then; null where somebody else has changed it meanwhile. */
    async function send() {
        // The tag of what the service has now: two people who write at once must not lose each other's words.
        const path = campaignPath(page.id);
        const [now, tag] = await getTagged(path, page.ctx.signal);
        if (!same(textsOf(now), base)) {
            base = textsOf(now);
            return null;
        }
        const change = changes();
        if (!Object.keys(change).length) return now;
        return (await patch(path, change, tag)) ?? { ...now, ...change };
    }

    async function save() {
        try {
            const saved = await send();
            if (!saved) {
                fill(inputs.answer, foreign(base));
                return;
            }
            show(saved);
            page.setCampaign(saved);
            fill(inputs.answer, h("p", { class: "good-text", role: "status" }, "Saved."));
            announce("saved");
        } catch (error) {
            if (error.name !== "AbortError") fill(inputs.answer, failure(error));
        }
    }

    show(page.campaign());
    page.readers.add(follow);
    return inputs.element;
}

function about({ id, owner, created, objective, launcher, trainer }) {
    return pairs([
        ["Identifier", h("code", {}, id)],
        ["Owner", owner ?? "–"],
        ["Created", time(created)],
        ["Objective", objective ?? "–"],
        ["Launcher", launcher ?? "–"],
        ["Trainer", trainer ?? "–"],
    ]);
}

function jsonPanel(title, text, tools = []) {
    const code = h("pre", { class: "code", tabindex: "0" }, text);
    return panel(title, { className: "w4", tools }, code);
}

export const settingsTab = {
    key: "settings",
    title: "Settings",
    open(page, body) {
        const campaign = page.campaign();
        const { id, spec, model, cluster, workload, space } = campaign;
        const submitted = prettyJson(spec ?? {});
        const save = () => saveText(submitted, `campaign-${id}.json`, "application/json");
        fill(
            body,
            h(
                "div",
                { class: "grid" },
                panel(
                    "Name, notes and tags",
                    { className: "w4" },
                    notesForm(page),
                    about(campaign),
                ),
                jsonPanel("As submitted", submitted, [button("Download", save, "quiet")]),
                jsonPanel(
                    "With defaults filled in",
                    prettyJson({ model, cluster, workload, space }),
                ),
            ),
        );
    },
};
