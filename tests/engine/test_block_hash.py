"""Chained hashes: a block's hash names its tokens and everything before them."""

import hashlib

from engine.block_hash import HashChain, block_hash, root_hash


def test_hash_is_sha256_over_parent_and_32_bit_ids():
    parent = bytes(range(32))
    expected = hashlib.sha256(parent + bytes([5, 0, 0, 0, 255, 1, 0, 0])).digest()
    assert block_hash(parent, [5, 511]) == expected


def test_root_depends_on_every_seed_and_on_where_it_ends():
    assert root_hash("a", "b") != root_hash("a", "c")
    assert root_hash("ab", "c") != root_hash("a", "bc")
    assert root_hash("a") == root_hash("a")


def test_same_tokens_after_another_prefix_have_another_hash():
    first = HashChain(root_hash("m"), 2)
    second = HashChain(root_hash("m"), 2)
    assert first.upto([1, 2, 9, 9], 2)[1] != second.upto([3, 4, 9, 9], 2)[1]


def test_chain_grows_and_does_not_hash_again():
    chain = HashChain(root_hash("m"), 2)
    tokens = [1, 2, 3]
    first = list(chain.upto(tokens, 1))
    tokens.append(4)
    both = chain.upto(tokens, 2)
    assert both[0] == first[0]
    assert both[1] == block_hash(first[0], [3, 4])
    assert chain.parent_of(0) == root_hash("m")
    assert chain.parent_of(1) == first[0]
