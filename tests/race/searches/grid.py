"""Layouts in the order of their keys' values, as nested loops over them would try them. The seed
is where the loops begin."""
import racing


class Search:
    def __init__(self, campaign, layouts):
        keys = sorted({key for layout in layouts for key in layout})
        ordered = sorted(layouts, key=lambda layout: [str(layout.get(key)).zfill(12) for key in keys])
        begin = campaign["search"]["seed"] * 7919 % len(ordered)
        self.left = ordered[begin:] + ordered[:begin]

    def ask(self):
        return self.left.pop(0) if self.left else None

    def tell(self, layout, tokens_per_s):
        pass


racing.serve(Search(*racing.files()))
