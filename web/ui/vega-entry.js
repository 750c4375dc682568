// The part of Vega that the dashboard draws with. Built by make into vendor/vega.min.js.
// The transforms are those of which the parser makes axes, legends, marks and scales; a spec has none of its own.
import { transforms } from "vega-dataflow";
import { axisticks, datajoin, encode, legendentries, scale, sortitems } from "vega-encode";
import {
    collect,
    compare,
    expression,
    extent,
    facet,
    field,
    key,
    multiextent,
    multivalues,
    params,
    prefacet,
    proxy,
    relay,
    sieve,
    tupleindex,
    values,
} from "vega-transforms";
import { bound, identifier, mark, overlap, render, viewlayout } from "vega-view-transforms";

Object.assign(transforms, {
    axisticks,
    bound,
    collect,
    compare,
    datajoin,
    encode,
    expression,
    extent,
    facet,
    field,
    identifier,
    key,
    legendentries,
    mark,
    multiextent,
    multivalues,
    overlap,
    params,
    prefacet,
    proxy,
    relay,
    render,
    scale,
    sieve,
    sortitems,
    tupleindex,
    values,
    viewlayout,
});

export { expressionInterpreter } from "vega-interpreter";
export { parse } from "vega-parser";
export { View } from "vega-view";
