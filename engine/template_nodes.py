"""Rewrites a parsed template so that what would run unchecked calls the sandbox."""

from __future__ import annotations

from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

SHORT_TEXT = 1_000
"""Characters of plain text that each round of a loop is taken to write, and may."""


def guard_nodes(source: nodes.Template, environment: jinja2.Environment) -> nodes.Template:
    """``source`` with checks in each loop, macro and block, and with the sandbox's own ``~``,
    slices and displays.
    """
    guarded = _Guard(environment).visit(source)
    guarded.set_environment(environment)
    return cast(nodes.Template, guarded)


class _Guard(NodeTransformer):
    def __init__(self, environment: jinja2.Environment) -> None:
        self._environment = environment

    def _call(self, node: nodes.Node, name: str, arguments: list[nodes.Expr]) -> nodes.Call:
        method = nodes.EnvironmentAttribute(name, lineno=node.lineno)
        return nodes.Call(method, arguments, [], None, None, lineno=node.lineno)

    def _with_tick(self, node: Any) -> nodes.Node:
        num_chars = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        checks: list[nodes.Expr] = [nodes.EnvironmentAttribute("tick", lineno=node.lineno)]
        if num_chars > SHORT_TEXT:
            count = nodes.Const(num_chars, lineno=node.lineno)
            checks.append(self._call(node, "count_text", [count]))
        node.body[:0] = [nodes.ExprStmt(check, lineno=node.lineno) for check in checks]
        return cast(nodes.Node, node)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._with_tick(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._with_tick(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._with_tick(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:
        return self._with_tick(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._call(node, "join_text", node.nodes)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        if _are_constant(node.items):
            return node
        return self._call(node, "make_list", node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        if node.ctx != "load" or _are_constant(node.items):
            return node
        return self._call(node, "make_tuple", node.items)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        items = [part for pair in node.items for part in (pair.key, pair.value)]
        return node if _are_constant(items) else self._call(node, "make_dict", items)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        none = nodes.Const(None, lineno=node.lineno)
        parts = (node.arg.start, node.arg.stop, node.arg.step)
        return self._call(node, "take_slice", [node.node, *(part or none for part in parts)])


def _are_constant(items: list[nodes.Expr]) -> bool:
    return all(isinstance(item, nodes.Const) for item in items)
