// When each trial ran.

import { fill, h } from "../lib/dom.js";
import { chartPanel } from "../charts/panel.js";
import { gantt } from "../charts/gantt.js";
import { go } from "../lib/router.js";

export const timelineTab = {
    key: "timeline",
    title: "Timeline",
    open(page, body) {
        const chart = chartPanel(page.ctx, {
            ...gantt,
            name: `timeline-${page.id}`,
            onClick: ({ n }) => n && go(["campaigns", page.id, "trials", String(n)]),
        });
        const update = () => chart.set({ trials: page.store.all() });
        fill(body, h("div", { class: "grid" }, chart.element));
        page.store.onChange(update);
        update();
    },
};
