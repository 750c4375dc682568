// The first view of a campaign: best so far, why the last trial was proposed, the table of trials.

import { campaignPath, explain, get, getText } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { saveText } from "../lib/download.js";
import { NONE, bytes, percent, rate } from "../lib/format.js";
import { go, href, setQuery } from "../lib/router.js";
import { scaled, unitOf } from "../lib/objective.js";
import { KINDS, LAYOUT_KEYS, TRIAL_STATES, spoken } from "../lib/words.js";
import { bestPlot, bestSummary, bestTable } from "../charts/best.js";
import { chartPanel } from "../charts/panel.js";
import { slicePanels, slicesOf } from "../parts/slices.js";
import { button, empty, field, linkButton, pairs, panel, trialBadge } from "../parts/parts.js";
import { listTable } from "../parts/list.js";
import { chosenColumns, columnChooser, trialColumns } from "./campaign-columns.js";
import { inferredText, isSmaller, ranText, standing } from "./trial-model.js";

const MOST_COMPARED = 5;
const RELOAD_MS = 150;

function select(title, values, at, onChange) {
    const element = h(
        "select",
        { onchange: () => onChange(element.value) },
        h("option", { value: "" }, "any"),
        values.map((value) => h("option", { value }, value)),
    );
    element.value = at ?? "";
    return field(title, element);
}

/** Trials that were picked for a comparison, and the way there. */
function comparison(id) {
    const chosen = new Set();
    const element = h("span", { role: "status" });

    function way() {
        const list = [...chosen].sort((a, b) => a - b);
        if (!list.length) return null;
        if (list.length > 1 && list.length <= MOST_COMPARED) {
            const trials = list.map((n) => `${id}/${n}`).join();
            return linkButton(`Compare trials ${list.join(", ")}`, href(["compare"], { trials }));
        }
        const hint = `${list.length} selected; compare two to ${MOST_COMPARED}`;
        return h("span", { class: "soft" }, hint);
    }
    return {
        element,
        has: (n) => chosen.has(n),
        set(n, on) {
            if (on) chosen.add(n);
            else chosen.delete(n);
            fill(element, way());
        },
    };
}

const FIRST_SORT = "-n";
const PAGE_SIZE = 100;

const filterOf = (ctx) => ({ state: ctx.query.state, kind: ctx.query.kind });

/** The first page of the table, as the address asks for it. */
export function firstTrials(ctx) {
    const page = get(
        campaignPath(ctx.segments[1], "/trials"),
        { ...filterOf(ctx), sort: FIRST_SORT, page_size: PAGE_SIZE },
        ctx.signal,
    );
    page.catch(() => {}); // the table tells of it
    return page;
}

/** Keep LIST as the trials of PAGE are, from events and answers. FILTER is what it is filtered by. */
function keepCurrent(page, list, filter) {
    let reloadTimer = 0;
    const reloadSoon = () => {
        reloadTimer ||= setTimeout(() => {
            reloadTimer = 0;
            list.load();
        }, RELOAD_MS);
    };
    // A change of state may bring a row into what is asked for, take it out of it, or move it.
    const inOrder = () => !filter.state && /^-?n$/.test(list.sort);
    page.onTrial = (trial, before) => {
        const inView = list.update(trial) !== null;
        if (before ? before.state !== trial.state && !inOrder() : !inView) reloadSoon();
    };
    // Rows say which trial is the best and how each compares with the baseline: drawn again when those change.
    let shown = "";
    page.readers.add((campaign) => {
        const now = standing(campaign);
        if (now !== shown && list.items.length) list.redraw();
        shown = now;
    });
    const first = list.load();
    // A second load would have the first one's answer thrown away, and the table wait for it.
    page.onReload = () => first.then(() => list.load());
    page.ctx.onLeave(() => clearTimeout(reloadTimer));
}

function noTrials(filter) {
    return filter.state || filter.kind
        ? empty("No trial matches", h("p", {}, "Change the filters above."))
        : empty("No trials yet", h("p", {}, "The baseline runs first, as soon as a slot is free."));
}

/** A button for each form in which the service gives all trials of campaign ID as a file. */
function downloads(id) {
    const answer = h("span", { role: "alert" });
    const fetchFile = async (format, type) => {
        try {
            const [text] = await getText(campaignPath(id, `/results.${format}`));
            saveText(text, `${id}.${format}`, type);
            fill(answer);
        } catch (error) {
            fill(answer, explain(error));
        }
    };
    return [
        button("CSV", () => fetchFile("csv", "text/csv"), "quiet"),
        button("JSON lines", () => fetchFile("jsonl", "application/x-ndjson"), "quiet"),
        answer,
    ];
}

function trialTable(page) {
    const { ctx, id } = page;
    const filter = filterOf(ctx);
    const chosen = chosenColumns();
    const picked = comparison(id);
    const columns = trialColumns(page.campaign, picked);
    const list = listTable(ctx, {
        path: campaignPath(id, "/trials"),
        query: () => filter,
        columns,
        chosen: [...chosen],
        id: (trial) => trial.n,
        rowClass: (trial) => (trial.n === page.campaign().best?.trial ? "winner" : null),
        sort: FIRST_SORT,
        pageSize: PAGE_SIZE,
        first: page.firstTrials,
        label: "trials",
        none: () => noTrials(filter),
    });
    const change = (key) => (value) => {
        filter[key] = value;
        setQuery({ [key]: value });
        list.load(true);
    };
    keepCurrent(page, list, filter);
    const filters = h(
        "div",
        { class: "filters" },
        select("State", Object.keys(TRIAL_STATES), filter.state, change("state")),
        select("Kind", Object.keys(KINDS), filter.kind, change("kind")),
        columnChooser(columns, chosen, (keys) => list.setColumns(keys)),
        picked.element,
        ...downloads(id),
    );
    return h(
        "section",
        { class: "panel", "aria-label": "Trials" },
        h("div", { class: "panel-head" }, h("h2", {}, "Trials")),
        h("div", { class: "panel-body" }, filters, list.element),
    );
}

/** The newest trial that the search proposed, and its reason. */
function lastProposal(trials) {
    for (let i = trials.length - 1; i >= 0; i--) if (trials[i].kind !== "verify") return trials[i];
    return null;
}

function drawProposal(body, page) {
    const trial = lastProposal(page.store.all());
    if (!trial) {
        fill(body, h("p", { class: "soft" }, "No proposal yet."));
        return;
    }
    const { n, layout, predicted } = trial;
    const keys = Object.keys(LAYOUT_KEYS).filter((key) => layout?.[key] !== undefined);
    const all = keys.map((key) => `${key} ${layout[key]}`).join(", ");
    const link = h("a", { href: href(["campaigns", page.id, "trials", n]) }, String(n));
    fill(
        body,
        pairs([
            ["Trial", h("span", {}, link, " ", trialBadge(trial.state))],
            ["Layout", h("span", { class: "mono" }, trial.text ?? NONE)],
            ["Why", trial.why ?? NONE],
            ["Expected", rate(predicted?.tokens_per_s)],
            ["Expected memory", bytes(predicted?.memory_bytes)],
            ["P(fits)", percent(predicted?.p_fits, 0)],
            isSmaller(trial) && ["Ran", ranText(trial)],
            trial.inferred && ["Inferred", inferredText(trial)],
            trial.tokens_per_s !== null && [
                spoken("Measured", page.campaign().simulated),
                rate(trial.tokens_per_s),
            ],
            keys.length && ["All keys", h("span", { class: "mono wrap soft" }, all)],
        ]),
    );
}

export const overviewTab = {
    key: "overview",
    title: "Overview",
    open(page, body) {
        const chart = chartPanel(page.ctx, {
            title: "Best so far",
            note:
                "Each trial with its 95 % interval, the cost model's prediction (arrow: off the scale) and the " +
                "best so far. Dashed circles are inferred from trials of smaller problems. " +
                "Click a point to open its trial. Ctrl + wheel or pinch to zoom.",
            name: `best-so-far-${page.id}`,
            className: "w8",
            size: "tall",
            none: "No trial has been measured yet.",
            plot: bestPlot,
            summary: bestSummary,
            table: bestTable,
            onClick: ({ n }) => n && go(["campaigns", page.id, "trials", String(n)]),
        });
        const proposal = h("div");
        const slices = h("div");
        const update = () => {
            const campaign = page.campaign();
            chart.set({
                trials: page.store.all().map((trial) => scaled(campaign, trial)),
                baseline: scaled(campaign, campaign.baseline),
                unit: unitOf(campaign),
                slice: slicesOf(campaign)[0],
            });
            fill(slices, slicePanels(campaign));
            drawProposal(proposal, page);
        };
        fill(
            body,
            h(
                "div",
                { class: "grid" },
                chart.element,
                panel("Last proposal", { className: "w4" }, proposal),
            ),
            slices,
            trialTable(page),
        );
        page.store.onChange(update);
        page.readers.add(update);
        update();
    },
};
