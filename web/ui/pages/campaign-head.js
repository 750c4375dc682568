// The head of a campaign's page: what it is, its state, what can be done with it.

import { campaignPath, post, remove } from "../lib/api.js";
import { announce, fill, h } from "../lib/dom.js";
import {
    NONE,
    count,
    counted,
    deviceTime,
    interval,
    isolated,
    percent,
    ratio,
    rate,
    seconds,
    significant,
    time,
} from "../lib/format.js";
import { ratioNote } from "../lib/objective.js";
import { go, href } from "../lib/router.js";
import { BASELINE_RULES, SIMULATED, reasonText } from "../lib/words.js";
import {
    button,
    campaignBadge,
    confirmDialog,
    failure,
    linkButton,
    simulatedBadge,
    tile,
    tiles,
} from "../parts/parts.js";
import { failuresText, savedDeviceSeconds, stoppedText } from "./campaigns.js";
import { jobText, warmText } from "./campaign-store.js";

const dotted = (...parts) => parts.filter(Boolean).join(" · ");

function trialsNote({ by_state: states, smaller_trials: smaller }) {
    const failures = failuresText(states);
    return dotted(
        smaller > 0 && `${count(smaller)} smaller`,
        failures ? `failed: ${failures}` : "none failed",
        stoppedText(states),
    );
}

/** What trials of smaller problems have cost of it all. */
function smallerText({ smaller_trials: trials, smaller_device_s: cost }) {
    return trials > 0 && `${deviceTime(cost)} of it by ${counted(trials, "smaller trial")}`;
}

/** What it has cost at the cluster's price. */
const spentText = ({ cost = null }) => cost !== null && `cost ${significant(cost)}`;

/** What the tiles say of CAMPAIGN: {best, baseline, gain, mfu, trials, cost}, each [value, note]. */
function tileTexts(campaign) {
    const { best, baseline, verify, simulated } = campaign;
    const progress = campaign.progress ?? {};
    const done = count(progress.trials);
    const saved = savedDeviceSeconds(campaign);
    return {
        best: [
            rate(best?.tokens_per_s),
            best ? resultNote(campaign, best) : "no successful trial yet",
        ],
        baseline: [rate(baseline?.tokens_per_s), baselineNote(campaign)],
        gain: [
            ratio(verify?.ratio ?? best?.ratio),
            dotted(ratioNote(campaign), gainNote(campaign)),
        ],
        mfu: [percent(best?.mfu), best?.mfu === null ? "device peak unknown" : ""],
        trials: [
            progress.budget ? `${done} of ${count(progress.budget)}` : done,
            trialsNote(progress),
        ],
        cost: simulated
            ? [NONE, "simulated: no device was used"]
            : [
                  deviceTime(progress.device_s),
                  dotted(spentText(progress), smallerText(progress), saved && `about ${deviceTime(saved)} saved`),
              ],
    };
}

const within = (result) =>
    `${result.simulated ? "simulated, " : ""}95 %: ${interval(result.lo, result.hi)}`;

/** The interval of RESULT, and the trial and the layout that it is of, after the words BEFORE. */
function resultNote(campaign, result, before = "") {
    const address = href(["campaigns", campaign.id, "trials", result.trial]);
    const link = h("a", { href: address }, `trial ${result.trial}`);
    const { cost_per_mtok: cost = null } = result;
    const price = cost === null ? "" : ` · ${significant(cost)} per million tokens`;
    return h("span", {}, before, within(result), price, h("br"), link, ` · ${result.text}`);
}

function baselineNote(campaign) {
    const rule = BASELINE_RULES[campaign.baseline_rule] ?? "";
    return campaign.baseline ? resultNote(campaign, campaign.baseline, `${rule} · `) : rule;
}

function gainNote({ state, verify }) {
    if (!verify?.verdict) return state === "verifying" ? "re-running" : "";
    const how = verify.simulated ? "simulated" : "measured";
    if (verify.verdict === "same") return `${how} again: the winner is the baseline`;
    return `${how} again, interleaved: ${ratio(verify.lo)} – ${ratio(verify.hi)}, ${verify.verdict}`;
}

/** The time of a campaign that told of it AGO seconds ago: [value, note]. */
function clockTexts({ state, started, created, progress }, ago) {
    const { elapsed_s: elapsed = null, eta_s: eta = null } = progress ?? {};
    const since = state === "running" ? ago : 0;
    const left = eta === null ? null : Math.max(0, eta - since);
    return [
        seconds(elapsed === null ? null : elapsed + since),
        state === "running" && left > 0
            ? `about ${seconds(left)} left`
            : `started ${time(started ?? created)}`,
    ];
}

/** The tiles: {element, update(campaign), drawClock(campaign)}. */
function summaryTiles() {
    const places = {
        best: tile(
            "Best so far",
            "fastest layout so far, with the 95 % interval of its throughput",
        ),
        baseline: tile("Baseline", "what the winner is compared with"),
        gain: tile("Gain", "throughput of the best over the baseline"),
        mfu: tile(
            "MFU",
            "model FLOP utilization of the best: 3 × forward, no recompute, over the peak of all devices",
        ),
        trials: tile("Trials"),
        clock: tile("Time", "time spent running"),
        cost: tile(
            "Device time",
            "devices × seconds; below, the estimate against trying every legal layout",
        ),
    };
    // The campaign tells of its time when something happens; a trial may take minutes in between.
    let told = 0;
    const drawClock = (campaign) =>
        places.clock.set(...clockTexts(campaign, (performance.now() - told) / 1000));
    return {
        element: tiles(...Object.values(places)),
        update(campaign) {
            for (const [name, texts] of Object.entries(tileTexts(campaign)))
                places[name].set(...texts);
            told = performance.now();
            drawClock(campaign);
        },
        drawClock,
    };
}

/** What can be done with CAMPAIGN, DO having a function for each verb. */
function actionButtons({ id, state, best }, verbs) {
    const over = ["done", "cancelled", "failed"].includes(state);
    return [
        state === "running" && button("Pause", verbs.pause),
        state === "paused" && button("Resume", verbs.resume, "primary"),
        over && best && button("Verify", verbs.verify),
        best && linkButton("Export", href(["campaigns", id, "export"])),
        best && linkButton("Project", href(["project"], { campaign: id })),
        linkButton("Clone and edit", href(["new"], { from: id })),
        linkButton("Compare", href(["compare"], { campaigns: id })),
        over ? button("Delete", verbs.drop, "danger") : button("Cancel", verbs.cancel, "danger"),
    ];
}

/** The requests behind the buttons. ASK(verb, ...question) resolves to true or false, ANSWER shows what went wrong. */
function actionVerbs(campaign, changed, ask, answer) {
    let busy = false;

    async function act(verb, said) {
        if (busy) return; // pressed twice
        busy = true;
        try {
            const now = await post(campaignPath(campaign().id, `:${verb}`), {});
            announce(said);
            fill(answer);
            if (now?.id && now.id === campaign().id) changed(now);
        } catch (error) {
            fill(answer, failure(error));
        }
        busy = false;
    }

    async function cancel() {
        const title = `Cancel ${isolated(campaign().name.slice(0, 80))}?`;
        const text = "Running trials are killed. Results so far are kept.";
        if (await ask("Cancel", title, text, "Cancel the campaign"))
            await act("cancel", "cancelled");
    }

    async function drop() {
        const { id, name } = campaign();
        const title = `Delete ${isolated(name.slice(0, 80))}?`;
        const text = "This also deletes its trials and logs.";
        if (!(await ask("Delete", title, text, "Delete"))) return;
        try {
            await remove(campaignPath(id));
            go(["campaigns"]);
        } catch (error) {
            fill(answer, failure(error));
        }
    }
    return {
        pause: () => act("pause", "paused"),
        resume: () => act("resume", "resumed"),
        verify: () => act("verify", "verifying"),
        cancel,
        drop,
    };
}

/** The buttons: {bar, answer, update()}. CHANGED(campaign) is told of what the service made of one. */
function actionBar(campaign, changed) {
    const bar = h("div", { class: "actions" });
    const answer = h("div");
    const verbs = actionVerbs(campaign, changed, ask, answer);
    let shown = "";

    /** Ask first; the button that asked may have been drawn anew meanwhile and has the focus again. */
    async function ask(verb, ...question) {
        const yes = await confirmDialog(...question);
        if (bar.isConnected && !document.activeElement?.closest("main *")) focusOn(verb);
        return yes;
    }

    function focusOn(text) {
        const found = [...bar.children].find((each) => each.textContent === text);
        found?.focus();
        return Boolean(found);
    }

    function update() {
        const { state, best } = campaign();
        const now = `${state} ${Boolean(best)}`; // all that the bar depends on
        if (now === shown) return;
        shown = now;
        const place = [...bar.children].indexOf(document.activeElement);
        const focused = bar.children[place]?.textContent;
        fill(bar, actionButtons(campaign(), verbs));
        // What takes the place of the one that was pressed is pressed next: Resume where Pause was.
        if (place >= 0 && !focusOn(focused))
            bar.children[Math.min(place, bar.children.length - 1)].focus();
    }
    return { bar, answer, update };
}

/**
 * The head of the page: {nodes, problem, draw(), drawClock()}. CAMPAIGN() is what it shows, CHANGED as for actionBar().
 */
export function campaignHead(ctx, campaign, changed) {
    const name = h("h1", {});
    const badge = h("span", {});
    const reason = h("p", { class: "sub" });
    const problem = h("div");
    const heads = summaryTiles();
    const actions = actionBar(campaign, changed);

    function draw() {
        const now = campaign();
        ctx.title(`${now.name.slice(0, 60)} (${now.state})`);
        name.textContent = now.name;
        badge.replaceChildren(campaignBadge(now.state), " ", simulatedBadge(now) ?? "");
        reason.textContent = dotted(
            reasonText(now.reason),
            now.simulated && SIMULATED[1],
            jobText(now) || NONE,
            warmText(now.warm_start),
        );
        heads.update(now);
        actions.update();
    }
    const nodes = [
        h("div", { class: "head" }, name, badge, h("span", { class: "grow" }), actions.bar),
        reason,
        actions.answer,
        problem,
        heads.element,
    ];
    return { nodes, problem, draw, drawClock: () => heads.drawClock(campaign()) };
}
