// The winner as another program's configuration, and what that program has no word for.

import { ApiError, campaignPath, get, getText } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copyText, saveText } from "../lib/download.js";
import { href, setQuery } from "../lib/router.js";
import { turns } from "../lib/turn.js";
import {
    button,
    crumbs,
    failure,
    field,
    loading,
    notice,
    panel,
    simulatedBadge,
} from "../parts/parts.js";

const ONLY_SIMULATED =
    "This campaign is simulated: no training job has run this layout. " +
    "Tick the box above to export it anyway; the file then says so.";
const NO_WINNER = "No successful trial yet. Export is available after the first one.";

/** Targets as the service lists them: names, or objects with name, title, version, wrappers. */
async function listTargets(signal) {
    const list = await get("v1/exporters", { page_size: 1000 }, signal);
    return (list.items ?? list).map((item) => (typeof item === "string" ? { name: item } : item));
}

function lossList(error) {
    const items = error.rules?.length
        ? error.rules.map(
              ({ key, setting, rule, detail }) => `${key ?? setting ?? rule}: ${detail}`,
          )
        : [error.message];
    return notice(
        "warn",
        h("p", {}, "This target cannot express all of the layout:"),
        h(
            "ul",
            {},
            items.map((item) => h("li", {}, item)),
        ),
        h("p", {}, "You can export it anyway; the file then lists what is lost."),
    );
}

const nameOf = (item) => (typeof item === "string" ? item : item.name);

/** What a target was written for and can express. */
const aboutTarget = ({ version, carries }) =>
    [version && `written for ${version}`, carries?.length && `supports ${carries.join(", ")}`]
        .filter(Boolean)
        .join(" · ");

function winner({ id, best }) {
    if (!best) return "No winner yet.";
    const trial = href(["campaigns", id, "trials", String(best.trial)]);
    return [
        "The winner is ",
        h("a", { href: trial }, `trial ${best.trial}`),
        ": ",
        h("span", { class: "mono" }, best.text),
    ];
}

/** The exported TEXT; fileName() says what a download of it is called. */
function exportPanel(name, text, fileName) {
    const code = h("pre", { class: "code", tabindex: "0" }, text);
    const tools = [
        button("Copy", () => copyText(text, code), "quiet"),
        button("Download", () => saveText(text, fileName()), "quiet"),
    ];
    return panel(name, { tools }, code);
}

/** The choices: {element, target(), wrapper(), allowLoss(), allowSimulated()}; ON_CHANGE() is told. */
function choices(ctx, campaign, targets, onChange) {
    const wrappers = [...new Set(targets.flatMap(({ wrappers: list }) => list ?? []).map(nameOf))];
    const select = h(
        "select",
        { onchange: onChange },
        targets.map(({ name, title }) =>
            h("option", { value: name }, title ? `${name}: ${title}` : name),
        ),
    );
    const wrap = h(
        "select",
        { onchange: onChange },
        ["", ...wrappers].map((name) => h("option", { value: name }, name || "none")),
    );
    const loss = h("input", { type: "checkbox", onchange: onChange });
    const leave = h("input", { type: "checkbox", onchange: onChange });
    if (targets.some(({ name }) => name === ctx.query.to)) select.value = ctx.query.to;
    if (wrappers.includes(ctx.query.in)) wrap.value = ctx.query.in;
    return {
        element: h(
            "div",
            { class: "filters" },
            field("Target", select),
            wrappers.length > 0 && field("Job script", wrap),
            h("label", {}, loss, "export even if settings are lost"),
            campaign.simulated && h("label", {}, leave, "export although simulated"),
        ),
        target: () => targets.find(({ name }) => name === select.value),
        wrapper: () => wrap.value,
        allowLoss: () => loss.checked,
        allowSimulated: () => leave.checked,
    };
}

/** The export that is chosen, shown in BODY, and what is known of its target in ABOUT. */
function exporter(ctx, campaign, targets, { about, body }) {
    const { id } = campaign;
    const next = turns(ctx);
    const chosen = choices(ctx, campaign, targets, show);

    async function load(name, signal) {
        const [text, response] = await getText(
            campaignPath(id, `/export/${encodeURIComponent(name)}`),
            {
                ...(chosen.allowLoss() && { allow_loss: "true" }),
                ...(chosen.allowSimulated() && { allow_simulated: "true" }),
            },
            signal,
        );
        const header = response.headers.get("Content-Disposition") ?? "";
        const given = header.match(/filename="?([^";]+)/)?.[1];
        return exportPanel(name, text, () => given ?? `${id}-${name}.txt`);
    }

    async function show() {
        const now = next();
        const target = chosen.target();
        const wrapper = chosen.wrapper();
        setQuery({ to: target.name, in: wrapper });
        about.textContent = aboutTarget(target);
        if (campaign.simulated && !chosen.allowSimulated()) {
            fill(body, notice("warn", ONLY_SIMULATED));
            return;
        }
        fill(body, loading("the export"));
        try {
            const name = wrapper ? `${wrapper}+${target.name}` : target.name;
            fill(body, await load(name, now.signal));
        } catch (error) {
            if (now.signal.aborted) return;
            const lossy = error instanceof ApiError && error.status === 422 && !chosen.allowLoss();
            fill(body, lossy ? lossList(error) : failure(error, show));
        }
    }
    return { element: chosen.element, show };
}

export async function render(ctx) {
    const id = ctx.segments[1];
    const [campaign, list] = await Promise.all([
        get(campaignPath(id), null, ctx.signal),
        listTargets(ctx.signal),
    ]);
    const about = h("p", { class: "sub" });
    const body = h("div", { "aria-live": "polite" });
    const { element, show } = exporter(ctx, campaign, list, { about, body });
    ctx.title(`Export ${campaign.name.slice(0, 60)}`);
    fill(
        ctx.root,
        crumbs(
            ["Campaigns", href([])],
            [campaign.name.slice(0, 80), href(["campaigns", id])],
            ["export"],
        ),
        h("div", { class: "head" }, h("h1", {}, "Export"), simulatedBadge(campaign)),
        h("p", { class: "sub" }, winner(campaign)),
        element,
        about,
        body,
    );
    if (!list.length) fill(body, notice("warn", "The service has no exporters."));
    else if (campaign.best) show();
    else fill(body, notice("warn", NO_WINNER));
}
