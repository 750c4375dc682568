// The end of a trial's output, followed while it grows. Only the last part is fetched; the whole is one click away.

import { getBytes, explain } from "../lib/api.js";
import { announce, atMostEvery, fill, h } from "../lib/dom.js";
import { saveBytes } from "../lib/download.js";
import { bytes } from "../lib/format.js";
import { button } from "./parts.js";

const TAIL = 64 * 1024;
const KEEP = 256 * 1024;
const PART = 1024 * 1024; // as much as the service gives at once
const POLL_MS = 1500;
const STREAMS = ["stdout", "stderr", "events"];

/** The tail of one stream of the log at PATH, as text. */
class Tail {
    #path;
    #signal;
    #offset = 0; // what has been read up to
    #decoder = new TextDecoder();
    stream;
    text = "";
    size = 0;

    constructor(path, stream, signal) {
        this.#path = path;
        this.#signal = signal;
        this.stream = stream;
    }

    /** At most LIMIT bytes from FROM on, and the size of the whole. */
    async #read(from, limit) {
        const query = { stream: this.stream, offset: from, limit };
        const [part, response] = await getBytes(this.#path, query, this.#signal);
        return [part, Number(response.headers.get("X-Log-Size") ?? 0)];
    }

    /** Read on. False where the file is shorter than what was read: another attempt writes a file of its own. */
    async more() {
        if (this.#offset === 0) {
            const [, whole] = await this.#read(0, 1);
            this.#offset = Math.max(0, whole - TAIL);
            if (this.#offset > 0) this.text = `… first ${bytes(this.#offset)} omitted …\n`;
        }
        const [part, whole] = await this.#read(this.#offset, TAIL);
        if (whole < this.#offset) return false;
        this.#offset += part.length;
        this.text = (this.text + this.#decoder.decode(part, { stream: true })).slice(-KEEP);
        this.size = whole;
        return true;
    }

    /** Every byte, in parts. */
    async whole() {
        const parts = [];
        let from = 0;
        for (let size = Infinity; from < size; ) {
            const [part, known] = await this.#read(from, PART);
            if (!part.length) break;
            parts.push(part);
            from += part.length;
            size = known;
        }
        return parts;
    }
}

/** The elements: {element, out, size, follow, choice}. DOWNLOAD() is called by the button. */
function logView(download) {
    const out = h("pre", { class: "log", tabindex: "0", "aria-label": "log" });
    const size = h("span", { class: "soft" });
    const follow = h("input", { type: "checkbox", checked: true });
    const choice = h(
        "select",
        { "aria-label": "stream" },
        STREAMS.map((name) => h("option", { value: name }, name)),
    );
    // Who scrolls back wants to read, not to be carried to the end again.
    const stay = () => (follow.checked = false);
    out.addEventListener("wheel", (event) => event.deltaY < 0 && stay(), { passive: true });
    out.addEventListener("keydown", (event) => {
        if (["ArrowUp", "PageUp", "Home"].includes(event.key)) stay();
    });
    const element = h(
        "section",
        { class: "panel w6", "aria-label": "Log" },
        h(
            "div",
            { class: "panel-head" },
            h("h2", {}, "Log"),
            choice,
            size,
            h("span", { class: "grow" }),
            h("label", { class: "soft" }, follow, "follow"),
            button("Download", download, "quiet"),
        ),
        h("div", { class: "panel-body" }, out),
    );
    return { element, out, size, follow, choice };
}

class LogPanel {
    #path;
    #signal;
    #tail;
    #chosen = false; // has a person chosen the stream?
    #isLive = false;
    #busy = false;
    #timer = 0;
    #view = logView(() => this.#download());
    more = atMostEvery(1000, () => this.#fetchMore());

    constructor(ctx, path) {
        this.#path = path;
        this.#signal = ctx.signal;
        this.#start(STREAMS[0]);
        this.#view.follow.addEventListener("change", () => this.#scroll());
        this.#view.choice.addEventListener("change", () => {
            this.#chosen = true;
            this.#start(this.#view.choice.value);
            this.#fetchMore();
        });
        const poll = () => this.#poll();
        document.addEventListener("visibilitychange", poll);
        ctx.onLeave(() => {
            this.#isLive = false;
            clearTimeout(this.#timer);
            document.removeEventListener("visibilitychange", poll);
        });
    }

    get element() {
        return this.#view.element;
    }

    #start(stream) {
        this.#tail = new Tail(this.#path, stream, this.#signal);
    }

    /** Read from the start of the tail again. */
    reload() {
        this.#start(this.#tail.stream);
        this.#fetchMore();
    }

    /** ON says whether the trial is writing. */
    live(on) {
        const ended = this.#isLive && !on;
        this.#isLive = on;
        this.#poll();
        if (ended) this.more();
    }

    #poll() {
        clearTimeout(this.#timer);
        this.#timer = 0;
        if (!this.#isLive || document.hidden) return;
        this.#timer = setTimeout(() => {
            this.#fetchMore();
            this.#poll();
        }, POLL_MS);
    }

    #scroll() {
        const { out, follow } = this.#view;
        if (follow.checked) out.scrollTop = out.scrollHeight;
    }

    #draw() {
        const nothing = this.#isLive ? "No output yet." : "No output.";
        this.#view.out.textContent = this.#tail.text || nothing;
        this.#view.size.textContent = bytes(this.#tail.size);
        this.#scroll();
    }

    /** Read on, one reader at a time; what was asked for meanwhile is read after it. */
    async #fetchMore() {
        if (this.#busy) return;
        this.#busy = true;
        const mine = this.#tail;
        try {
            const whole = await mine.more();
            if (mine === this.#tail) {
                if (whole) this.#draw();
                else this.#start(mine.stream);
            }
        } catch (error) {
            if (mine === this.#tail) this.#fail(error);
        } finally {
            this.#busy = false;
            if (mine !== this.#tail) this.#fetchMore();
        }
    }

    #fail(error) {
        const { stream } = this.#tail;
        const { out, choice } = this.#view;
        if (error.status === 404 && stream === "stdout" && !this.#chosen && !this.#isLive) {
            // A trial without processes of its own has events alone.
            choice.value = "events";
            this.#start(choice.value);
        } else if (error.status === 404) fill(out, "No output in this stream.");
        else if (error.name !== "AbortError") fill(out, explain(error));
    }

    async #download() {
        const { stream } = this.#tail;
        try {
            const parts = await new Tail(this.#path, stream, this.#signal).whole();
            saveBytes(parts, `${stream}.log`);
        } catch (error) {
            if (error.name !== "AbortError") announce(explain(error));
        }
    }
}

/** The log of the trial at PATH. Returns {element, reload(), more(), live(on)}. */
export function logPanel(ctx, path) {
    return new LogPanel(ctx, path);
}
