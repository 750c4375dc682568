// The dashboard as a person uses it: sign in, start a campaign, watch it, look into it, export, compare, plan. The
// campaign is real: tiny trials of the bundled trainer on this machine.

import assert from "node:assert/strict";
import fs from "node:fs";
import { inked, openBrowser, openPage, scrollThrough, show, violations } from "./browser.mjs";
import { startProxy } from "./proxy.mjs";
import { scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const NASTY = `<img src=x onerror="alert(1)"> \u202Edesrever "'&amp; `;

const dir = scratch("pages");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);
let id = "";

const heading = () => page.textContent("h1");
const hash = () => page.evaluate(() => location.hash);
const visit = (route) => show(page, daemon, route);
const tab = (name) => page.click(`[role=tab]:text-is("${name}")`);
const panel = (title) =>
    page.locator("section.panel", { has: page.locator(`h2:text-is("${title}")`) });
const state = (name) =>
    page.waitForSelector(`.head .badge:has-text("${name}")`, { timeout: 600_000 });

async function drawn(title) {
    const place = panel(title);
    await place.scrollIntoViewIfNeeded();
    await place.locator("canvas").first().waitFor();
    await until(
        async () => (await inked(place.locator("canvas").first())) > 200,
        `${title} to be drawn`,
    );
}

test("a page without a token asks for one, and says when it is wrong", async () => {
    await page.goto(daemon.url);
    await page.waitForSelector("#token");
    await page.fill("#token", "pt_wrong");
    await page.click("button.primary");
    await page.waitForSelector("text=Unknown token");
    await page.fill("#token", daemon.token);
    await page.click("button.primary");
    await page.waitForSelector("text=No campaigns yet");
});

test("the printed link signs in and its token leaves the address", async () => {
    await visit("/campaigns");
    assert.equal(await heading(), "Campaigns");
    assert.doesNotMatch(await page.evaluate(() => location.href), /token/);
    await page.waitForSelector(".live-on");
});

test("the form of a new campaign shows a refusal at its field", async () => {
    await visit("/new");
    const data = page.locator("label.field", { hasText: "Global batch" });
    await data.locator("input").fill("-3");
    await page.waitForSelector("text=This campaign would be rejected");
    await until(
        async () => (await data.locator(".field-error").textContent()) !== "",
        "the message at the field",
    );
    assert.equal(await data.locator("input").getAttribute("aria-invalid"), "true");
    assert.ok(await page.locator("button:text-is('Start the campaign')").isDisabled());
});

test("a job script pasted into the form becomes the baseline", async () => {
    await visit("/new");
    const field = (name) => page.locator("label.field", { hasText: name });
    await page.fill(
        "textarea[aria-label='the campaign as JSON']",
        JSON.stringify(tinyCampaign("script")),
    );
    await field("Read as").locator("select").selectOption("megatron");
    const script = field("Script or configuration");
    await script.locator("textarea").fill("--tensor-parallel-size 2");
    await until(
        async () => (await script.locator(".field-error").textContent()).includes("tensor-parallel"),
        "the refusal at the script",
    );
    await script.locator("textarea").fill("--tensor-model-parallel-size 1 --micro-batch-size 1");
    await field("Ranks").last().locator("input").fill("1");
    await page.waitForSelector("text=Legal layouts");
    await page.waitForSelector("text=the campaign's own layout");
    const spec = JSON.parse(
        await page.inputValue("textarea[aria-label='the campaign as JSON']"),
    );
    assert.deepEqual(spec.baseline, {
        import: "megatron",
        text: "--tensor-model-parallel-size 1 --micro-batch-size 1",
        world: 1,
    });
});

test("a campaign written as JSON is checked, started, and shown", async () => {
    await visit("/new");
    await page.fill(
        "textarea[aria-label='the campaign as JSON']",
        JSON.stringify(
            tinyCampaign(`${NASTY}one`, {
                tags: ["<b>t</b>"],
                notes: "first",
                // Long enough to be watched, killed and paused by a browser on a busy machine.
                budget: { trials: 12 },
                trial: { warmup_steps: 1, min_steps: 20, max_steps: 20, timeout_s: 600 },
            }),
        ),
    );
    await page.waitForSelector("text=Legal layouts");
    await page.waitForSelector("text=Baseline memory");
    await page.click("button:text-is('Start the campaign')");
    await page.waitForFunction(() => /#\/campaigns\/\w+$/.test(location.hash));
    id = await page.evaluate(() => location.hash.split("/").pop());
    await page.waitForSelector(".head .badge");
    assert.equal(await heading(), `${NASTY}one`.trim());
});

test("trials appear and settle without a reload", async () => {
    await page.evaluate(() => {
        window.sameDocument = true;
    });
    await page.waitForSelector("tbody .badge:text('ok')", { timeout: 600_000 });
    await until(
        async () => (await page.locator("tbody tr").count()) >= 2,
        "a second trial",
        600_000,
    );
    assert.ok(await page.evaluate(() => window.sameDocument));
    assert.match(await page.textContent(".tile dd"), /tokens\/s/);
    await drawn("Best so far");
});

test("a live page recovers after kill -9 and a restart of the daemon, and misses nothing", async () => {
    const before = await page.locator("tbody tr").count();
    await daemon.kill("SIGKILL");
    await page.waitForSelector(".live-lost");
    await daemon.restart();
    await page.waitForSelector(".live-on");
    await until(
        async () => (await page.locator("tbody tr").count()) > before,
        "the next trial",
        600_000,
    );
    assert.ok(await page.evaluate(() => window.sameDocument));
});

test("pause and resume", async () => {
    await page.click("button:text-is('Pause')");
    await state("paused");
    await page.click("button:text-is('Resume')");
    await state("running");
});

test("the campaign ends and says why", async () => {
    await until(
        async () => (await daemon.api("GET", `v1/campaigns/${id}`)).state === "done",
        "the end of the campaign",
        900_000,
    );
    await state("done");
    const c = await daemon.api("GET", `v1/campaigns/${id}`);
    assert.ok(c.best && c.baseline);
    const shown = Number((await page.textContent(".tile dd")).replace(/[^\d.]/g, ""));
    assert.ok(
        Math.abs(shown / c.best.tokens_per_s - 1) < 1e-3,
        `${shown} is shown for ${c.best.tokens_per_s}`,
    );
});

test("the table filters and sorts by asking the service, and its columns can be chosen", async () => {
    await visit(`/campaigns/${id}`);
    await page.waitForSelector("tbody tr");
    const trials = (await daemon.api("GET", `v1/campaigns/${id}/trials?sort=-tokens_per_s`)).items;
    await page.click("th button:has-text('Tokens/s')");
    await until(
        async () => (await page.textContent("tbody tr:first-child th")) === String(trials[0].n),
        "the fastest to be first",
    );
    await page.selectOption("label:has-text('Kind') select", "baseline");
    await until(
        async () =>
            (await page.locator("section[aria-label=Trials] tbody tr").count()) ===
            trials.filter((t) => t.kind === "baseline").length,
        "the filter",
    );
    await page.click("summary:has-text('Columns')");
    await page.check("label:has-text('P(fits)') input");
    await page.waitForSelector("th:has-text('P(fits)')");
});

test("the trial page shows layout, steps, phases, memory, mesh and log", async () => {
    const best = (await daemon.api("GET", `v1/campaigns/${id}`)).best;
    await visit(`/campaigns/${id}/trials/${best.trial}`);
    assert.equal(await heading(), `Trial ${best.trial}`);
    for (const title of [
        "Step time",
        "Distribution of step times",
        "Phases of each step",
        "Memory of the worst rank",
        "Spread over ranks",
        "Busy time by rank",
        "Timeline of one step",
    ])
        await drawn(title);
    const busy = panel("Busy time by rank");
    await busy.locator("button:text-is('Table')").click();
    await busy.locator("thead th").first().waitFor();
    assert.equal(await busy.locator("thead th").count(), 1 + best.layout.world);
    const lanes = panel("Timeline of one step");
    await lanes.locator("button:text-is('Table')").click();
    await lanes.locator(".chart-table tbody tr").first().waitFor();
    assert.match(await lanes.locator(".chart-table").textContent(), /rank 1[\s\S]*forward/);
    const download = page.waitForEvent("download");
    await lanes.locator("button:text-is('Trace')").click();
    const trace = JSON.parse(fs.readFileSync(await (await download).path(), "utf8"));
    assert.ok(trace.traceEvents.some((e) => e.ph === "X" && e.name === "backward"));
    const steps = (await daemon.api("GET", `v1/campaigns/${id}/trials/${best.trial}/steps`)).items;
    await panel("Step time").locator("button:text-is('Table')").click();
    await until(
        async () => (await panel("Step time").locator("tbody tr").count()) === steps.length,
        "a row for each step",
    );
    assert.match(await page.textContent(".log"), /step/);
    await page.waitForSelector("svg.mesh rect.rank");
    assert.equal(await page.locator("svg.mesh rect.rank").count(), best.layout.world);
    assert.match(await page.textContent("dl.tiles"), /tokens\/s[\s\S]*ms[\s\S]*MiB/);
});

test("a trial says why it is faster or slower than the baseline", async () => {
    const { items } = await daemon.api("GET", `v1/campaigns/${id}/trials?state=ok`);
    const { n } = items.find((t) => t.n > 1 && t.kind === "search" && t.phases_ms);
    const why = await daemon.api("GET", `v1/campaigns/${id}/trials/${n}/why`);
    await visit(`/campaigns/${id}/trials/${n}`);
    const faster = why.trials.ratio >= 1 ? "faster" : "slower";
    const found = panel(`Why it is ${faster} than the baseline`);
    await found.locator("table").first().waitFor();
    const tables = found.locator("table");
    assert.equal(await tables.nth(0).locator("tbody tr").count(), why.keys.length);
    assert.match(
        await tables.nth(0).locator("tbody tr").first().textContent(),
        new RegExp(`^${why.keys[0].key}.*${why.keys[0].to}.*%|as fast`),
    );
    const classes = await tables.nth(1).locator("tbody tr > :first-child").allTextContents();
    const known = why.classes.map((row) => row.class);
    assert.ok(classes.length > 2 && classes.every((name) => known.includes(name)), `${classes}`);
    assert.match(await tables.nth(1).locator("thead").textContent(), /Measured change/);
    assert.match(await found.textContent(), /Measured: .*instead of .*Expected by the cost model/);
    await visit(`/campaigns/${id}/trials/1`);
    await drawn("Step time");
    assert.equal(await page.locator("h2:has-text('than the baseline')").count(), 0);
});

test("a losing trial shows where the best one was faster, and how to rerun it", async () => {
    const { best } = await daemon.api("GET", `v1/campaigns/${id}`);
    const lost = (await daemon.api("GET", `v1/campaigns/${id}/trials?state=ok`)).items.find(
        (t) => t.n !== best.trial && t.phases_ms,
    );
    await visit(`/campaigns/${id}/trials/${lost.n}`);
    const table = panel("Median step").locator("table");
    await table.locator(`th:has-text("trial ${best.trial}, ms")`).waitFor();
    const cells = await table.locator("tbody tr:last-child > *").allTextContents();
    assert.equal(cells.length, 5);
    assert.match(cells[4], /^([+−][\d.,< ]+|0)$/);
    const commands = await page.textContent("pre.commands");
    assert.match(commands, new RegExp(`--trial ${lost.n} --output (\\S+)\\n.* --config \\1$`));
    assert.match(commands, new RegExp(`mpiexec -n ${lost.layout.world} `));
    await page.click("main a:text-is('Compare with best')");
    await page.waitForSelector("text=vs first");
    assert.match(await hash(), new RegExp(`${id}(/|%2F)${best.trial}$`));
});

test("the keyboard goes to the next trial and the one before", async () => {
    await visit(`/campaigns/${id}/trials/1`);
    await page.keyboard.press("]");
    await page.waitForFunction(() => location.hash.endsWith("/trials/2"));
    await page.waitForSelector("h1:text-is('Trial 2')");
    await page.keyboard.press("[");
    await page.waitForSelector("h1:text-is('Trial 1')");
});

test("there is no link before the first or after the newest trial", async () => {
    const trials = `v1/campaigns/${id}/trials?sort=-n&page_size=1`;
    const last = (await daemon.api("GET", trials)).items[0].n;
    await visit(`/campaigns/${id}/trials/${last}`);
    const before = page.locator("a:text-is('← Previous')");
    assert.equal(await before.getAttribute("href"), `#/campaigns/${id}/trials/${last - 1}`);
    assert.ok(await page.isDisabled("button:text-is('Next →')"));
    await visit(`/campaigns/${id}/trials/${last - 1}`);
    await page.click("a:text-is('Next →')");
    await page.waitForSelector(`h1:text-is('Trial ${last}')`);
    await visit(`/campaigns/${id}/trials/1`);
    assert.ok(await page.isDisabled("button:text-is('← Previous')"));
});

test("the tabs of a campaign are reached by the arrow keys, have addresses, and draw their charts", async () => {
    await visit(`/campaigns/${id}`);
    await page.focus("[role=tab][aria-selected=true]");
    await page.keyboard.press("ArrowRight");
    assert.match(await page.evaluate(() => location.hash), /tab=space/);
    for (const title of ["Layouts, parallel coordinates", "Parameter importance", "Surrogate"])
        await drawn(title);
    await tab("Model and memory");
    for (const title of [
        "Throughput, predicted and measured",
        "Memory, predicted and measured",
        "Throughput and memory",
    ])
        await drawn(title);
    await tab("Timeline");
    await drawn("Trials over time");
    await page.goBack();
    assert.equal(
        await page.getAttribute("[role=tab][aria-selected=true]", "id"),
        await page.getAttribute("[role=tab]:text-is('Model and memory')", "id"),
    );
});

test("a hidden view is out of sight and reach, and opens when the browser's search finds a word in it", async () => {
    await visit(`/campaigns/${id}`);
    const trials = page.locator("section[aria-label=Trials]");
    await trials.locator("tbody tr").first().waitFor();
    await tab("Timeline");
    await trials.waitFor({ state: "hidden" });
    assert.equal(await page.getByRole("region", { name: "table of trials" }).count(), 0);
    const height = await page.evaluate(() =>
        Math.max(...[...document.querySelectorAll("[role=tabpanel][hidden]")].map((e) => e.offsetHeight)),
    );
    assert.equal(height, 0);
    await trials.dispatchEvent("beforematch", { bubbles: true });
    await trials.waitFor({ state: "visible" });
    assert.equal(await page.textContent("[role=tab][aria-selected=true]"), "Overview");
    assert.doesNotMatch(await page.evaluate(() => location.hash), /tab=/);
});

test("a chart is also a table, a CSV file and a picture", async () => {
    await visit(`/campaigns/${id}`);
    await drawn("Best so far");
    const place = panel("Best so far");
    await place.locator("button:text-is('Table')").click();
    const trials = (await daemon.api("GET", `v1/campaigns/${id}/trials`)).items;
    await until(
        async () => (await place.locator("tbody tr").count()) === trials.length,
        "a row for each trial",
    );
    const save = async (name) => {
        const [download] = await Promise.all([
            page.waitForEvent("download"),
            place.locator(`button:text-is('${name}')`).click(),
        ]);
        return fs.readFileSync(await download.path());
    };
    const lines = (await save("CSV")).toString().trim().split("\r\n");
    assert.equal(lines.length, trials.length + 1);
    assert.match(lines[0], /^trial,layout,state,tokens\/s/);
    assert.equal((await save("PNG")).subarray(1, 4).toString(), "PNG");
});

test("notes and tags are kept", async () => {
    await visit(`/campaigns/${id}?tab=settings`);
    await page.fill("label:has-text('Notes') textarea", "second <i>thoughts</i>");
    await page.fill("label:has-text('Tags') input", "alpha beta");
    await page.click("button:text-is('Save')");
    await page.waitForSelector("text=Saved.");
    const c = await daemon.api("GET", `v1/campaigns/${id}`);
    assert.equal(c.notes, "second <i>thoughts</i>");
    assert.deepEqual(c.tags, ["alpha", "beta"]);
});

test("the list of campaigns filters, and shows a hostile name as text", async () => {
    await visit("/campaigns");
    await page.waitForSelector("tbody tr");
    assert.ok((await page.textContent("tbody th a")).startsWith("<img src=x"));
    assert.equal(await page.locator("tbody img").count(), 0);
    await page.fill("input[placeholder='part of the name']", "no such campaign");
    await page.waitForSelector("text=No campaign matches");
});

test("an export is shown, with what the target cannot express", async () => {
    await visit(`/campaigns/${id}/export`);
    const targets = (await daemon.api("GET", "v1/exporters")).items.map((t) => t.name ?? t);
    assert.ok(targets.includes("megatron") && targets.includes("partune"));
    for (const target of targets) {
        await page.selectOption("label:has-text('Target') select", target);
        await page.waitForSelector("main pre.code, main .notice", { timeout: 20_000 });
        await page.waitForTimeout(100);
    }
    await page.selectOption("label:has-text('Target') select", "megatron");
    // Whichever layout has won: Megatron has no word for some, and the file then says what is lost.
    await page.check("label:has-text('export even if settings are lost') input");
    await page.waitForSelector("pre.code:has-text('--tensor-model-parallel-size')");
});

test("winner and baseline are measured again, interleaved, and the verdict is shown", async () => {
    await visit(`/campaigns/${id}`);
    await page.click("main button:text-is('Verify')");
    await state("verifying");
    await until(
        async () => (await daemon.api("GET", `v1/campaigns/${id}`)).state === "done",
        "the verification",
        900_000,
    );
    await state("done");
    const { verify } = await daemon.api("GET", `v1/campaigns/${id}`);
    // Whichever layout has won: of so small a model it can be the baseline itself.
    const shown = verify.verdict === "same" ? "the winner is the baseline" : verify.verdict;
    if (shown) await page.waitForSelector(`.tile:has-text("Gain"):has-text("${shown}")`);
});

test("everything works below a path, behind a reverse proxy", async () => {
    const proxy = await startProxy(daemon.url, "/tools/tuner/");
    const p = await openPage(browser, proxy.url);
    await p.goto(
        `${proxy.url}#token=${encodeURIComponent(daemon.token)}&to=${encodeURIComponent(`/campaigns/${id}`)}`,
    );
    await p.waitForSelector("section[aria-label=Trials] tbody tr");
    await p.waitForSelector(".live-on");
    await p.waitForSelector("canvas");
    await p.click("section[aria-label=Trials] tbody tr:first-child th a");
    await p.waitForSelector("h1:has-text('Trial')");
    await p.click("nav a:text-is('Plan')");
    await p.click("button:text-is('Rank layouts')");
    await p.waitForSelector("text=legal layouts", { timeout: 300_000 });
    assert.ok((await p.evaluate(() => location.pathname)) === "/tools/tuner/");
    assert.deepEqual(p.faults, []);
    await p.context().close();
    proxy.close();
});

test("trials and campaigns are compared side by side", async () => {
    await visit(`/compare?trials=${id}/1,${id}/2`);
    await page.waitForSelector("text=vs first");
    assert.equal(await page.locator("thead th").count(), 3);
    await drawn("Phases of the median step");
});

test("a plan ranks layouts without a trial, and a campaign of its stack starts from it", async () => {
    await visit("/plan");
    await page.selectOption("label:has-text('Stack') select", "megatron-core");
    await page.click("button:text-is('Rank layouts')");
    await page.waitForSelector("text=legal layouts", { timeout: 300_000 });
    assert.ok((await page.locator("[aria-label='table of ranked layouts'] tbody tr").count()) > 5);
    await drawn("Step time by phase");
    await page.click("[aria-label='table of ranked layouts'] tbody tr:first-child button");
    await page.waitForSelector("h1:text-is('New campaign')");
    const spec = JSON.parse(await page.inputValue("textarea[aria-label='the campaign as JSON']"));
    assert.ok(spec.baseline.world > 1);
    assert.equal(spec.stack, "megatron-core");
    assert.equal(await page.inputValue("label:has-text('Stack') select"), "megatron-core");
});

test("a plan compares numbers of devices: days, cost, and how many suffice", async () => {
    const input = (title) => page.locator(`label:has-text("${title}") input`);

    await visit("/plan");
    await input("Days").fill("200");
    await page.click("button:text-is('Compare sizes')");
    await page.waitForSelector("text=days need tokens");
    await input("Tokens to train on").fill("1e12");
    await input("Price of a device-hour").fill("2");
    await page.click("button:text-is('Compare sizes')");
    const rows = page.locator("[aria-label='table of sizes'] tbody tr");
    await rows.nth(2).waitFor();
    assert.match(await page.locator("main").textContent(), /In 200 days: 64 devices expected/);
    const cells = await rows.last().locator("td").allTextContents();
    const number = (text) => Number(text.replaceAll(",", ""));
    assert.ok(Math.abs(number(cells[10]) / number(cells[9]) - 2) < 0.01, cells.join("; "));
    assert.match(cells[8], /to/);
});

test("what each rule excludes is shown as the service counts it", async () => {
    await visit("/plan");
    // As docs/reference/http.md has it: the panel is the page's work, the numbers are the service's.
    await page.route("**/v1/plan", async (route) => {
        const answer = await (await route.fetch()).json();
        answer.candidates = 1_200_000;
        answer.excluded = [
            { rule: "world-dense", count: 900_000, sentence: "for example: <i>world 8</i>" },
            { rule: "memory", count: answer.legal - answer.fitting, sentence: "too large" },
        ];
        await route.fulfill({ json: answer });
    });
    await page.click("button:text-is('Rank layouts')");
    const rows = panel("What each rule excludes").locator("tbody tr");
    await rows.nth(1).waitFor();
    assert.match(await rows.nth(0).textContent(), /world-dense900,00075.0 %for example: <i>world 8/);
    assert.match(await rows.nth(1).textContent(), /memory[\d,]+[\d.]+ % of legal layouts/);
    await page.unroute("**/v1/plan");
});

test("a plan says what options would bring that its space does not name", async () => {
    await visit("/plan");
    await page.selectOption("label:has-text('Model') select", "deepseek-v3");
    await page.selectOption("label:has-text('Cluster') select", "dgx-h100");
    await page.fill("label:has-text('Nodes') input", "64");
    await page.selectOption("label:has-text('Trainer') select", "megatron");
    await page.fill("label:has-text('Space') input", '{"tp": [4], "pp": [4, 8], "ep": [64]}');
    const notice = page.locator("main p.notice");
    for (let tries = 0; tries < 10 && !(await notice.isVisible()); tries++) { // on a busy machine two seconds may be too few for it
        await Promise.all([page.waitForResponse("**/v1/plan"), page.click("button:text-is('Rank layouts')")]);
        await notice.waitFor({ timeout: 2000 }).catch(() => {});
    }
    const note = await notice.textContent();
    assert.match(note, /does not name: .*moe_dispatch \w+.* to be 1\.\d\d × as fast/);
});

test("a campaign is projected to other scales, with tables, plots and errors of earlier projections", async () => {
    await visit(`/campaigns/${id}`);
    await page.click("main a:text-is('Project')");
    await page.waitForSelector("h1:text-is('Projection')");
    assert.equal(await page.inputValue("label:has-text('Campaign') select"), id);
    const sizes = page.locator("label.field", { hasText: "Devices" }).locator("input");
    await sizes.fill("two");
    await page.click("button:text-is('Project')");
    assert.equal(await sizes.getAttribute("aria-invalid"), "true");
    await sizes.fill("2, 4");
    await page.selectOption("label:has-text('Layouts') select", "best");
    await page.selectOption("label:has-text('Cluster') select", "dgx-a100");
    await page.click("button:text-is('Project')");
    for (const kind of ["strong", "weak"]) {
        const rows = page.locator(`[aria-label='table of ${kind} scaling'] tbody tr`);
        await rows.nth(1).waitFor({ timeout: 300_000 });
        assert.equal(await rows.count(), 2);
    }
    for (const title of ["Throughput at other scales", "Efficiency"]) await drawn(title);
    assert.match(
        await page.textContent("main"),
        /Projected to another machine \(changed: device, .*dgx-a100 of A100-80 SXM.*the intervals include .*20(\.0)? %/,
    );
    await page.waitForSelector("section.panel:has(h2:text-is('Errors of earlier projections'))");
    // One that has been measured since, as docs/reference/http.md has it.
    const past = {
        devices: 2,
        text: "<i>dp2</i>",
        projected: 110,
        lo: 80,
        hi: 130,
        measured: 100,
        measured_by: id,
        trial: 1,
        error: 0.1,
        inside: true,
    };
    await page.route("**/v1/project", async (route) => {
        const answer = await (await route.fetch()).json();
        await route.fulfill({ json: { ...answer, earlier: [past] } });
    });
    await page.click("button:text-is('Project')");
    const row = page.locator("[aria-label='table of earlier projections'] tbody tr");
    await row.waitFor({ timeout: 300_000 });
    assert.match(await row.textContent(), /<i>dp2<\/i>.*\+10\.0 %✓ yes/);
    await page.unroute("**/v1/project");
});

test("a published study is reproduced, its own numbers next to the model's", async () => {
    await visit("/project?study=frontier-1t");
    await page.waitForSelector("[aria-label='table of the study'] tbody tr", { timeout: 300_000 });
    await drawn("MFU and efficiency");
    assert.match(await page.textContent("main"), /3,072[\s\S]*arXiv/);
    await page.selectOption("label:has-text('Study') select", "mixtral-8x7b");
    await page.waitForSelector("text=Mixtral 8x7B on DGX H100", { timeout: 300_000 });
    assert.match(await page.evaluate(() => location.hash), /study=mixtral-8x7b/);
});

test("a clone starts from what was submitted", async () => {
    await visit(`/new?from=${id}`);
    await page.waitForSelector("h1:text-is('Clone and edit')");
    const spec = JSON.parse(await page.inputValue("textarea[aria-label='the campaign as JSON']"));
    assert.equal(spec.workload.global_batch, 8);
    assert.match(spec.name, /again$/);
});

test("a missing page says so", async () => {
    await page.goto("about:blank");
    await page.goto(daemon.link("/campaigns/zzzzzzzz"));
    await page.waitForSelector(".notice.bad");
    await visit("/nowhere");
    assert.equal(await heading(), "Not found");
});

test("a running campaign is cancelled after a question, then deleted", async () => {
    const c = await daemon.api(
        "POST",
        "v1/campaigns",
        tinyCampaign("to be cancelled", { budget: { trials: 50 } }),
    );
    await visit(`/campaigns/${c.id}`);
    await page.click("main button:text-is('Cancel')");
    await page.click("dialog button:text-is('Cancel the campaign')");
    await state("cancelled");
    // Its last trial takes a moment to die, and until then the service refuses; the page says so and stays.
    await until(
        async () => {
            await page.click("main button:text-is('Delete')");
            await page.click("dialog button:text-is('Delete')");
            return page
                .waitForFunction(() => location.hash === "#/campaigns", null, { timeout: 2000 })
                .then(
                    () => true,
                    () => false,
                );
        },
        "the deletion",
        120_000,
    );
});

const routes = () => [
    "/campaigns",
    `/campaigns/${id}`,
    `/campaigns/${id}?tab=space`,
    `/campaigns/${id}?tab=model`,
    `/campaigns/${id}?tab=timeline`,
    `/campaigns/${id}?tab=settings`,
    `/campaigns/${id}/trials/1`,
    `/campaigns/${id}/export`,
    "/new",
    "/plan",
    `/project?campaign=${id}`,
    `/compare?trials=${id}/1,${id}/2`,
];

for (const theme of ["light", "dark"])
    test(`no page has a serious or critical accessibility violation in the ${theme} theme`, async () => {
        const p = await openPage(browser, daemon.url, { theme, bypassCSP: true });
        const found = [];
        for (const route of routes().filter((_, i) => theme === "light" || i % 2 === 0)) {
            await show(p, daemon, route);
            await scrollThrough(p);
            // Only colors differ between the themes.
            found.push(
                ...(await violations(p, theme === "dark" ? ["color-contrast"] : undefined)).map(
                    (v) => `${route}: ${v}`,
                ),
            );
        }
        assert.deepEqual(found, []);
        await p.context().close();
    });

test("no error, no refusal by the content policy and no other host in the background", async () => {
    assert.deepEqual(page.faults, []);
});

const failed = await finish({
    onFail: (name) =>
        page.screenshot({ path: `${dir}/${name.replace(/\W+/g, "-").slice(0, 60)}.png` }),
});
await browser.close();
await daemon.stop();
if (failed === 0) fs.rmSync(dir, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
