// The table behind a chart.

import { fill, h } from "../lib/dom.js";
import { count, significant } from "../lib/format.js";

const MOST_ROWS = 500;

/** A cell of a table; WHOLE says that its column has whole numbers only, such as a trial's. */
function cell(value, whole) {
    if (typeof value !== "number") return value ?? "–";
    return whole ? count(value) : significant(value, 4);
}

/** How each column is shown: {numeric, whole}. */
function columnKinds({ columns, rows }) {
    const isNumber = (value) => typeof value === "number";
    return columns.map((_, i) => ({
        numeric: rows.some((row) => isNumber(row[i])),
        whole: rows.every((row) => !isNumber(row[i]) || Number.isInteger(row[i])),
    }));
}

/** Show DATA, {columns, rows}, in PLACE; with a CAPTION where it has one. */
export function drawDataTable(place, data, caption) {
    const kinds = columnKinds(data);
    const className = (i) => (kinds[i].numeric ? "num" : null);
    const header = (name, i) => h("th", { scope: "col", class: className(i) }, name);
    const tableRow = (row) =>
        h(
            "tr",
            {},
            row.map((value, i) => h("td", { class: className(i) }, cell(value, kinds[i].whole))),
        );
    fill(
        place,
        h(
            "table",
            {},
            caption && h("caption", {}, caption),
            h("thead", {}, h("tr", {}, data.columns.map(header))),
            h("tbody", {}, data.rows.slice(0, MOST_ROWS).map(tableRow)),
        ),
        data.rows.length > MOST_ROWS &&
            h(
                "p",
                { class: "panel-note" },
                `The first ${MOST_ROWS} of ${data.rows.length} rows; the CSV file has all.`,
            ),
    );
}
