"""A template's syntax tree with the places marked where a rendering can grow.

Knows Jinja's node types only; the filters it names are `template_sandbox`'s. Their names cannot be
written in a template.
"""

from __future__ import annotations

from typing import Any, cast

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

COUNTED = "<counted>"
"""Wraps what a loop goes over."""
MADE = "<made>"
"""Wraps what a filter gives."""
BUILT = "<built>"
"""Wraps a list, tuple or dictionary that the template writes out."""
CONCAT = "<concat>"
"""Stands for the `~` operator; gets the list of its operands."""


class GrowthMarks(NodeTransformer):
    """Sends loops, filters, literals and `~` through the filters above, and template text through
    the same door as every other output."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filtered(COUNTED, node.iter)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(MADE, node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(CONCAT, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return node if node.ctx != "load" else _filtered(BUILT, node)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(BUILT, node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(BUILT, node)

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        return nodes.Const(node.data, lineno=node.lineno)


def mark_growth(template: nodes.Template) -> nodes.Template:
    marked = GrowthMarks().visit(template)
    assert isinstance(marked, nodes.Template)
    marked.set_environment(template.environment)  # type: ignore[arg-type]
    return marked


def _filtered(name: str, node: nodes.Node) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, node), name, [], [], None, None, lineno=node.lineno)


class GenerationBlock(Extension):
    """`{% generation %}` ... `{% endgeneration %}`, which templates of Hugging Face's training code
    put around assistant text: the body as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
