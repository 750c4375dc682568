# Rows of the launchers or exporters that files define: awk -f rows.awk KIND=launcher FILE...
#
#   KIND=launcher   LAUNCHER(name, runs) of each `const struct tn_launcher tn_launcher_NAME = {` and its `.runs`
#   KIND=exporter   EXPORTER(name) of each `const struct tn_exporter tn_export_NAME = {`
#
# Who includes the rows defines LAUNCHER or EXPORTER before each inclusion; it is undefined at the end.
FNR == 1 && !begun++ { print "/* Made by tuner/rows.awk: do not edit. */" }
KIND == "exporter" && /^const struct tn_exporter tn_export_[a-z0-9_]+ = [{]$/ {
    sub(/^tn_export_/, "", $4)
    print "EXPORTER(" $4 ")"
}
KIND == "launcher" && /^const struct tn_launcher tn_launcher_[a-z0-9_]+ = [{]$/ {
    sub(/^tn_launcher_/, "", $4)
    name = $4
}
name != "" && sub(/^    [.]runs = /, "") {
    sub(/,$/, "")
    print "LAUNCHER(" name ", " $0 ")"
    name = ""
}
/^};$/ && name != "" {
    print FILENAME ": tn_launcher_" name " does not say where trials run (.runs, on one line)" | "cat >&2"
    failed = 1
}
END {
    print "#undef " (KIND == "launcher" ? "LAUNCHER" : "EXPORTER")
    exit failed
}
