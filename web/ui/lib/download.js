// Files made in the browser, and its clipboard.

import { announce } from "./dom.js";

/**
 * TEXT, which ELEMENT shows, to the clipboard. Browsers give one only to pages of this machine or over TLS: elsewhere
 * the text is selected.
 */
export async function copyText(text, element) {
    try {
        await navigator.clipboard.writeText(text);
        announce("copied");
    } catch {
        getSelection().selectAllChildren(element);
        announce("text selected: press Ctrl + C to copy");
    }
}

function save(blob, name) {
    const address = URL.createObjectURL(blob);
    const a = document.createElement("a");
    a.href = address;
    a.download = name;
    a.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export function saveText(text, name, type = "text/plain") {
    save(new Blob([text], { type: `${type};charset=utf-8` }), name);
}

/** PARTS, arrays of bytes, one after the other. */
export function saveBytes(parts, name, type = "text/plain") {
    save(new Blob(parts, { type }), name);
}

export function saveDataUrl(dataUrl, name) {
    const [head, body] = dataUrl.split(",");
    const raw = atob(body);
    const data = Uint8Array.from(raw, (c) => c.charCodeAt(0));
    save(new Blob([data], { type: head.slice(5, head.indexOf(";")) }), name);
}

// RFC 4180; a cell that a spreadsheet would run as a formula is preceded by an apostrophe.
function csvCell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    let text = String(value);
    if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** COLUMNS are names, ROWS arrays of cells. */
export function csv(columns, rows) {
    return [columns, ...rows].map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");
}

export function saveCsv(columns, rows, name) {
    saveText(csv(columns, rows), `${name}.csv`, "text/csv");
}
