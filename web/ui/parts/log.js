// The end of a trial's output, followed while it grows. Only the last part is fetched; the whole is one click away.

import { getBytes, explain } from "../lib/api.js";
import { announce, atMostEvery, fill, h } from "../lib/dom.js";
import { saveBytes } from "../lib/download.js";
import { bytes } from "../lib/format.js";

const TAIL = 64 * 1024;
const KEEP = 256 * 1024;
const PART = 1024 * 1024; // as much as the service gives at once
const POLL_MS = 1500;

export function logPanel(ctx, path) {
    let stream = "stdout";
    let chosen = false;
    let offset = 0; // what has been read up to
    let text = "";
    let decoder = new TextDecoder();
    let isLive = false;
    let busy = false;
    let timer = 0;

    const out = h("pre", { class: "log", tabindex: "0", "aria-label": "log" });
    const size = h("span", { class: "soft" });
    const follow = h("input", { type: "checkbox", checked: true, onchange: scroll });
    const choice = h(
        "select",
        {
            "aria-label": "stream",
            onchange: () => {
                stream = choice.value;
                chosen = true;
                reload();
            },
        },
        ["stdout", "stderr", "events"].map((s) => h("option", { value: s }, s)),
    );

    // Who scrolls back wants to read, not to be carried to the end again.
    out.addEventListener("wheel", (e) => e.deltaY < 0 && (follow.checked = false), {
        passive: true,
    });
    out.addEventListener("keydown", (e) => {
        if (["ArrowUp", "PageUp", "Home"].includes(e.key)) follow.checked = false;
    });

    function scroll() {
        if (follow.checked) out.scrollTop = out.scrollHeight;
    }

    function draw() {
        out.textContent = text || (isLive ? "Nothing written yet." : "Nothing was written.");
        scroll();
    }

    async function read(from, limit) {
        const query = { stream, offset: from, limit };
        const [part, response] = await getBytes(path, query, ctx.signal);
        return [part, Number(response.headers.get("X-Log-Size") ?? 0)];
    }

    async function fetchMore() {
        if (busy) return;
        busy = true;
        let again = false;
        const mine = stream;
        try {
            if (offset === 0) {
                const [, whole] = await read(0, 1);
                offset = Math.max(0, whole - TAIL);
                text = offset > 0 ? `… the first ${bytes(offset)} are left out …\n` : "";
            }
            const [part, whole] = await read(offset, TAIL);
            if (mine !== stream) return;
            if (whole < offset) {
                again = true; // another attempt writes a file of its own
                return;
            }
            offset += part.length;
            text = (text + decoder.decode(part, { stream: true })).slice(-KEEP);
            size.textContent = bytes(whole);
            draw();
        } catch (error) {
            if (error.status === 404 && stream === "stdout" && !chosen && !isLive) {
                // A trial without processes of its own has events alone.
                stream = "events";
                choice.value = stream;
            } else if (error.status === 404)
                fill(out, "Nothing has been written to this stream.");
            else if (error.name !== "AbortError") fill(out, explain(error));
        } finally {
            busy = false;
            if (mine !== stream || again) reload();
        }
    }

    function reload() {
        offset = 0;
        text = "";
        decoder = new TextDecoder();
        fetchMore();
    }

    async function download() {
        const parts = [];
        let from = 0;
        try {
            for (let whole = Infinity; from < whole; ) {
                const [part, size_] = await read(from, PART);
                if (!part.length) break;
                parts.push(part);
                from += part.length;
                whole = size_;
            }
            saveBytes(parts, `${stream}.log`);
        } catch (error) {
            if (error.name !== "AbortError") announce(explain(error));
        }
    }

    const more = atMostEvery(1000, fetchMore);
    const poll = () => {
        clearTimeout(timer);
        timer =
            isLive && !document.hidden
                ? setTimeout(() => {
                      fetchMore();
                      poll();
                  }, POLL_MS)
                : 0;
    };
    document.addEventListener("visibilitychange", poll);
    ctx.onLeave(() => {
        isLive = false;
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", poll);
    });

    return {
        element: h(
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
                h("button", { type: "button", class: "quiet", onclick: download }, "Download"),
            ),
            h("div", { class: "panel-body" }, out),
        ),
        reload,
        more,
        live(on) {
            const ended = isLive && !on;
            isLive = on;
            poll();
            if (ended) more();
        },
    };
}
