// The first view of a campaign: best so far, why the last trial was proposed, the table of trials.

import { campaignPath, get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import {
    bytes,
    ms,
    percent,
    plusMinus,
    ratio,
    rateNumber,
    seconds,
    rate,
    NONE,
} from "../lib/format.js";
import { go, href, setQuery } from "../lib/router.js";
import { local } from "../lib/store.js";
import { KINDS, LAYOUT_KEYS, TRIAL_STATES, spoken } from "../lib/words.js";
import { bestOption, bestSummary, bestTable } from "../charts/best.js";
import { chartPanel } from "../charts/panel.js";
import { empty, pairs, panel, trialBadge } from "../parts/parts.js";
import { listTable } from "../parts/list.js";

const CHOSEN = "partune-trial-columns";
const FIRST_CHOICE = ["kind", "step", "mfu", "memory", "expected", "seconds", "compare"];
const MOST_COMPARED = 5;

const Z95 = 1.959964;

function trialColumns(campaign, picked) {
    const link = (t) =>
        h(
            "a",
            { href: href(["campaigns", t.campaign ?? campaign().id, "trials", t.n]) },
            String(t.n),
        );
    return [
        { key: "n", title: "Trial", sort: "n", num: true, cell: link },
        {
            key: "layout",
            title: "Layout",
            plain: true,
            cell: (t) => h("span", { class: "mono name" }, t.text ?? NONE),
        },
        {
            key: "state",
            title: "State",
            sort: "state",
            plain: true,
            cell: (t) => [
                trialBadge(t.state),
                t.n === campaign().best?.trial && [" ", h("span", { class: "badge good" }, "★ best")],
                (t.failure?.detail ?? t.warning) &&
                    h(
                        "div",
                        { class: "soft detail", title: t.warning ?? null },
                        (t.failure?.detail ?? t.warning).slice(0, 160),
                    ),
            ],
        },
        {
            key: "tokens",
            title: campaign().simulated ? "Simulated tokens/s" : "Tokens/s",
            sort: "tokens_per_s",
            num: true,
            cell: (t) => [
                rateNumber(t.tokens_per_s),
                t.tokens_per_s && t.tokens_per_s_se
                    ? h("span", { class: "soft" }, ` ${plusMinus(Z95 * t.tokens_per_s_se, t.tokens_per_s)}`)
                    : null,
            ],
        },
        {
            key: "ratio",
            title: "vs baseline",
            num: true,
            cell: (t) => {
                const b = campaign().baseline?.tokens_per_s;
                return b && t.tokens_per_s ? ratio(t.tokens_per_s / b) : NONE;
            },
        },
        {
            key: "kind",
            title: "Kind",
            optional: true,
            fixed: true,
            cell: (t) =>
                h(
                    "span",
                    { title: KINDS[t.kind] ?? "" },
                    t.kind,
                    t.repeat_of ? ` of ${t.repeat_of}` : "",
                ),
        },
        {
            key: "step",
            title: "Step",
            optional: true,
            num: true,
            cell: (t) => ms(t.step_ms?.median),
        },
        { key: "mfu", title: "MFU", optional: true, num: true, cell: (t) => percent(t.mfu) },
        {
            key: "memory",
            title: "Memory",
            sort: "memory",
            optional: true,
            num: true,
            help: "of the worst rank",
            cell: (t) => bytes((t.simulated ? t.memory?.planned : t.memory?.measured)?.total),
        },
        {
            key: "expected",
            title: "Expected tokens/s",
            optional: true,
            num: true,
            cell: (t) => rateNumber(t.predicted?.tokens_per_s),
        },
        {
            key: "fits",
            title: "P(fits)",
            optional: true,
            num: true,
            cell: (t) => percent(t.predicted?.p_fits, 0),
        },
        {
            key: "loss",
            title: "Loss, nats",
            optional: true,
            num: true,
            cell: (t) =>
                t.loss?.last !== null && t.loss?.last !== undefined ? t.loss.last.toFixed(3) : NONE,
        },
        {
            key: "attempts",
            title: "Attempts",
            optional: true,
            num: true,
            cell: (t) => String(t.attempts ?? NONE),
        },
        {
            key: "seconds",
            title: "Took",
            optional: true,
            num: true,
            cell: (t) => seconds(t.seconds),
        },
        {
            key: "why",
            title: "Why it was tried",
            optional: true,
            wide: true,
            cell: (t) => t.why ?? NONE,
        },
        {
            key: "compare",
            title: "Compare",
            optional: true,
            cell: (t) =>
                h("input", {
                    type: "checkbox",
                    "aria-label": `compare trial ${t.n}`,
                    checked: picked.has(t.n),
                    onchange: (e) => picked.set(t.n, e.target.checked),
                }),
        },
    ];
}

function columnChooser(columns, chosen, onChange) {
    const boxes = columns
        .filter((c) => c.optional)
        .map((c) =>
            h(
                "label",
                {},
                h("input", {
                    type: "checkbox",
                    checked: chosen.has(c.key),
                    onchange: (e) => {
                        if (e.target.checked) chosen.add(c.key);
                        else chosen.delete(c.key);
                        local.set(CHOSEN, [...chosen].join(" "));
                        onChange([...chosen]);
                    },
                }),
                c.title,
            ),
        );
    return h(
        "details",
        {},
        h("summary", { class: "soft" }, "Columns"),
        h("div", { class: "filters" }, boxes),
    );
}

function select(title, values, at, onChange) {
    const element = h(
        "select",
        { onchange: () => onChange(element.value) },
        h("option", { value: "" }, "any"),
        values.map((v) => h("option", { value: v }, v)),
    );
    element.value = at ?? "";
    return h("label", { class: "field" }, h("span", {}, title), element);
}

/** Trials that were picked for a comparison, and the way there. */
function comparison(id) {
    const chosen = new Set();
    const element = h("span", { role: "status" });

    function draw() {
        const list = [...chosen].sort((a, b) => a - b);
        if (!list.length) fill(element);
        else if (list.length === 1 || list.length > MOST_COMPARED)
            fill(
                element,
                h(
                    "span",
                    { class: "soft" },
                    `${list.length} picked; two to ${MOST_COMPARED} can be compared`,
                ),
            );
        else
            fill(
                element,
                h(
                    "a",
                    {
                        class: "button",
                        href: href(["compare"], { trials: list.map((n) => `${id}/${n}`).join() }),
                    },
                    `Compare trials ${list.join(", ")}`,
                ),
            );
    }
    return {
        element,
        has: (n) => chosen.has(n),
        set(n, on) {
            if (on) chosen.add(n);
            else chosen.delete(n);
            draw();
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

function trialTable(page) {
    const { ctx, id } = page;
    const filter = filterOf(ctx);
    const kept = local.get(CHOSEN);
    const chosen = new Set(kept === null ? FIRST_CHOICE : kept.split(" "));
    const picked = comparison(id);
    const columns = trialColumns(page.campaign, picked);
    const list = listTable(ctx, {
        path: campaignPath(id, "/trials"),
        query: () => filter,
        columns,
        chosen: [...chosen],
        id: (t) => t.n,
        rowClass: (t) => (t.n === page.campaign().best?.trial ? "winner" : null),
        sort: FIRST_SORT,
        pageSize: PAGE_SIZE,
        first: page.firstTrials,
        label: "trials",
        none: () =>
            filter.state || filter.kind
                ? empty("No trial matches", h("p", {}, "Change the filters above."))
                : empty(
                      "No trials yet",
                      h("p", {}, "The first one, the baseline, starts when a slot is free."),
                  ),
    });
    const change = (key) => (value) => {
        filter[key] = value;
        setQuery({ [key]: value });
        list.load(true);
    };

    let reloadTimer = 0;
    const reloadSoon = () => {
        reloadTimer ||= setTimeout(() => {
            reloadTimer = 0;
            list.load();
        }, 150);
    };
    // A change of state may bring a row into what is asked for, take it out of it, or move it.
    const inOrder = () => !filter.state && /^-?n$/.test(list.sort());
    page.onTrial = (t, before) => {
        const inView = list.update(t) !== null;
        if (before ? before.state !== t.state && !inOrder() : !inView) reloadSoon();
    };
    // Rows say which trial is the best and how each stands against the baseline: drawn again when those change.
    let standing = "";
    page.readers.add((c) => {
        const now = `${c.best?.trial} ${c.baseline?.tokens_per_s}`;
        if (now !== standing && list.items().length) list.redraw();
        standing = now;
    });
    const first = list.load();
    // A second load would have the first one's answer thrown away, and the table wait for it.
    page.onReload = () => first.then(() => list.load());
    ctx.onLeave(() => clearTimeout(reloadTimer));

    return h(
        "section",
        { class: "panel", "aria-label": "Trials" },
        h("div", { class: "panel-head" }, h("h2", {}, "Trials")),
        h(
            "div",
            { class: "panel-body" },
            h(
                "div",
                { class: "filters" },
                select("State", Object.keys(TRIAL_STATES), filter.state, change("state")),
                select("Kind", Object.keys(KINDS), filter.kind, change("kind")),
                columnChooser(columns, chosen, list.setColumns),
                picked.element,
            ),
            list.element,
        ),
    );
}

/** The newest trial that the search proposed, and its reason. */
function lastProposal(trials) {
    for (let i = trials.length - 1; i >= 0; i--) if (trials[i].kind !== "verify") return trials[i];
    return null;
}

function drawProposal(body, page) {
    const t = lastProposal(page.store.all());
    if (!t) {
        fill(body, h("p", { class: "soft" }, "Nothing has been proposed yet."));
        return;
    }
    const keys = Object.keys(LAYOUT_KEYS).filter((k) => t.layout?.[k] !== undefined);
    fill(
        body,
        pairs([
            [
                "Trial",
                h(
                    "span",
                    {},
                    h("a", { href: href(["campaigns", page.id, "trials", t.n]) }, String(t.n)),
                    " ",
                    trialBadge(t.state),
                ),
            ],
            ["Layout", h("span", { class: "mono" }, t.text ?? NONE)],
            ["Why", t.why ?? NONE],
            ["Expected", rate(t.predicted?.tokens_per_s)],
            ["Memory expected", bytes(t.predicted?.memory_bytes)],
            ["Fits with", percent(t.predicted?.p_fits, 0)],
            t.tokens_per_s !== null && [
                spoken("Measured", page.campaign().simulated),
                rate(t.tokens_per_s),
            ],
            keys.length && [
                "All keys",
                h(
                    "span",
                    { class: "mono wrap soft" },
                    keys.map((k) => `${k} ${t.layout[k]}`).join(", "),
                ),
            ],
        ]),
    );
}

export const overviewTab = {
    key: "overview",
    title: "Overview",
    open(page, body) {
        const chart = chartPanel(page.ctx, {
            title: "Best so far",
            note: "Every trial with its 95 % interval, what the cost model expected of it (an arrow: beyond the scale), and the best so far. Click a point for its trial; control and wheel, or two fingers, zoom.",
            name: `best-so-far-${page.id}`,
            className: "w8",
            size: "tall",
            none: "No trial has been measured yet.",
            option: bestOption,
            summary: bestSummary,
            table: bestTable,
            onClick: (p) =>
                p.value?.[0] && go(["campaigns", page.id, "trials", String(p.value[0])]),
        });
        const proposal = h("div");
        const update = () => {
            chart.set({ trials: page.store.all(), baseline: page.campaign().baseline });
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
            trialTable(page),
        );
        page.store.onChange(update);
        page.readers.add(update);
        update();
    },
};
