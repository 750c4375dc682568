// The winner as another program's configuration, and what that program has no word for.

import { ApiError, campaignPath, get, getText } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copyText, saveText } from "../lib/download.js";
import { href, setQuery } from "../lib/router.js";
import { turns } from "../lib/turn.js";
import { failure, loading, notice, panel, simulatedBadge } from "../parts/parts.js";

/** Targets as the service lists them: names, or objects with name, title, version, wrappers. */
async function targets(signal) {
    const list = await get("v1/exporters", { page_size: 1000 }, signal);
    return (list.items ?? list).map((t) => (typeof t === "string" ? { name: t } : t));
}

function lossList(error) {
    const items = error.rules?.length
        ? error.rules.map((r) => `${r.key ?? r.setting ?? r.rule}: ${r.detail}`)
        : [error.message];
    return notice(
        "warn",
        h("p", {}, "This target cannot express all of the layout:"),
        h(
            "ul",
            {},
            items.map((t) => h("li", {}, t)),
        ),
        h("p", {}, "It can be written all the same; what is lost is then listed in the file."),
    );
}

export async function render(ctx) {
    const id = ctx.segments[1];
    const [campaign, list] = await Promise.all([
        get(campaignPath(id), null, ctx.signal),
        targets(ctx.signal),
    ]);
    const wrappers = [
        ...new Set(
            list.flatMap((t) => t.wrappers ?? []).map((w) => (typeof w === "string" ? w : w.name)),
        ),
    ];
    const select = h(
        "select",
        { onchange: show },
        list.map((t) => h("option", { value: t.name }, t.title ? `${t.name}: ${t.title}` : t.name)),
    );
    const wrap = h(
        "select",
        { onchange: show },
        ["", ...wrappers].map((w) => h("option", { value: w }, w || "nothing")),
    );
    const loss = h("input", { type: "checkbox", onchange: show });
    const leave = h("input", { type: "checkbox", onchange: show });
    const about = h("p", { class: "sub" });
    const body = h("div", { "aria-live": "polite" });
    const next = turns(ctx);
    if (list.some((t) => t.name === ctx.query.to)) select.value = ctx.query.to;
    if (wrappers.includes(ctx.query.in)) wrap.value = ctx.query.in;

    function download(text, response, name) {
        const header = response.headers.get("Content-Disposition") ?? "";
        saveText(text, header.match(/filename="?([^";]+)/)?.[1] ?? `${id}-${name}.txt`);
    }

    async function show() {
        const now = next();
        const target = list.find((t) => t.name === select.value);
        const name = wrap.value ? `${wrap.value}+${target.name}` : target.name;
        setQuery({ to: target.name, in: wrap.value });
        about.textContent = [
            target.version && `written for ${target.version}`,
            target.carries?.length && `expresses ${target.carries.join(", ")}`,
        ]
            .filter(Boolean)
            .join(" · ");
        if (campaign.simulated && !leave.checked) {
            fill(
                body,
                notice(
                    "warn",
                    "This campaign is simulated: no training job has run this layout. It can be written all the same; the file then says so.",
                ),
            );
            return;
        }
        fill(body, loading("the export"));
        try {
            const [text, response] = await getText(
                campaignPath(id, `/export/${encodeURIComponent(name)}`),
                {
                    ...(loss.checked && { allow_loss: "true" }),
                    ...(leave.checked && { allow_simulated: "true" }),
                },
                now.signal,
            );
            const code = h("pre", { class: "code", tabindex: "0" }, text);
            fill(
                body,
                panel(
                    name,
                    {
                        tools: [
                            h(
                                "button",
                                {
                                    type: "button",
                                    class: "quiet",
                                    onclick: () => copyText(text, code),
                                },
                                "Copy",
                            ),
                            h(
                                "button",
                                {
                                    type: "button",
                                    class: "quiet",
                                    onclick: () => download(text, response, name),
                                },
                                "Download",
                            ),
                        ],
                    },
                    code,
                ),
            );
        } catch (error) {
            if (!now.signal.aborted)
                fill(
                    body,
                    error instanceof ApiError && error.status === 422 && !loss.checked
                        ? lossList(error)
                        : failure(error, show),
                );
        }
    }

    const field = (title, input) => h("label", { class: "field" }, h("span", {}, title), input);
    ctx.title(`Export ${campaign.name.slice(0, 60)}`);
    fill(
        ctx.root,
        h(
            "p",
            { class: "crumbs" },
            h("a", { href: href([]) }, "Campaigns"),
            " / ",
            h("a", { href: href(["campaigns", id]) }, h("bdi", {}, campaign.name.slice(0, 80))),
            " / export",
        ),
        h("div", { class: "head" }, h("h1", {}, "Export"), simulatedBadge(campaign)),
        h(
            "p",
            { class: "sub" },
            campaign.best
                ? [
                      "The winner is ",
                      h(
                          "a",
                          { href: href(["campaigns", id, "trials", String(campaign.best.trial)]) },
                          `trial ${campaign.best.trial}`,
                      ),
                      ": ",
                      h("span", { class: "mono" }, campaign.best.text),
                  ]
                : "There is no winner yet.",
        ),
        h(
            "div",
            { class: "filters" },
            field("Target", select),
            wrappers.length > 0 && field("Wrapped in", wrap),
            h("label", {}, loss, "write it even if something is lost"),
            campaign.simulated && h("label", {}, leave, "write it although it is simulated"),
        ),
        about,
        body,
    );
    if (!list.length) fill(body, notice("warn", "The service has no exporters."));
    else if (campaign.best) show();
    else
        fill(
            body,
            notice(
                "warn",
                "Export needs a trial that succeeded; come back when the first one has ended.",
            ),
        );
}
