"""Plays in each of the settings that occur: who speaks, and nothing else is taken for speech."""

import pytest

from fedeba_jax.data.sources.plays import roles

PERSONS = """THE PLAY

by Somebody

PERSONS REPRESENTED.

Hamlet, Prince of Denmark.
Horatio, Friend to Hamlet.
Cornwall, a Duke.
Cordelia, a Daughter.
Two Clowns, Carriers, Witches.
Ghost of Hamlet's Father.

SCENE. Elsinore.

ACT I.

SCENE I. A platform.

[Enter HAMLET and
HORATIO.]

"""


def play(text):
    return roles(PERSONS + text)


@pytest.mark.parametrize(
    "text",
    [
        "HAMLET.\nWho's there?\nStand.\n\nHORATIO.\nA friend.\n\nHAMLET.\nCome.\n",
        "HAMLET\nWho's there?\nStand.\n\nHORATIO\nA friend.\n\nHAMLET\nCome.\n\nHORATIO\n\n[Exit.]\n",
        "Ham.\nWho's there?\nStand.\n\nHor.\nA friend.\n\nHam.\nCome.\n",
        "HAMLET.\nWho's there?\nStand.\n\nHORATIO.\n[Aside.] A friend.\n\nHAMLET.\n[To him.]\n\nCome.\n",
        "HAMLET. Who's there?\nStand.\n\nHORATIO.\nA friend.\n\nHAMLET.\nCome.\n",
        "HAMLET.\nWho's there?\nStand.\nHORATIO. A friend.\n\nHAMLET.\nCome.\n\nHORATIO.\n\n",
        "HAMLET.\n  Who's   there?\n Stand.\n\nHORATIO.\nA friend.\n\nHAMLET:\n_Come_.\n",
    ],
    ids=["own line", "no stop", "abbreviated", "directions", "beside", "inside a paragraph", "spaces"],
)
def test_every_setting_gives_the_same_roles(text):
    assert play(text) == {"HAMLET": [["Who's there?", "Stand."], ["Come."]], "HORATIO": [["A friend."]]}


def test_headings_of_acts_and_scenes_end_a_speech_and_are_nobodys():
    got = play("HAMLET.\nOne.\n\nACT II.\n\nSCENE II. Another room.\n\nThe same. Night.\n\nHORATIO.\nTwo.\n\nTHE END\n")
    assert got == {"HAMLET": [["One."]], "HORATIO": [["Two."]]}


def test_a_speech_goes_on_after_a_direction():
    got = play("HAMLET.\nOne.\n\n[Exit HORATIO, with a\nlight.]\n\nTwo.\n\nHORATIO.\nThree. [Exit.]\n")
    assert got == {"HAMLET": [["One.", "Two."]], "HORATIO": [["Three."]]}


@pytest.mark.parametrize(
    "direction",
    [
        "[Enter a GHOST.}",
        "[Enter a GHOST",
        "Enter a GHOST, armed.",
        "A GHOST, armed.]",
        "[Enter [a GHOST.]",
        "[They join]\nwith the GHOST and dance.]",
    ],
)
def test_a_direction_with_a_missing_bracket_is_no_speech(direction):
    got = play(f"HAMLET.\nOne.\n\n{direction}\n\nHORATIO.\nTwo.\n\nHAMLET.\nThree. Exit\n")
    assert got == {"HAMLET": [["One."], ["Three."]], "HORATIO": [["Two."]]}


@pytest.mark.parametrize(
    "several", ["ALL.", "BOTH.", "HAMLET and HORATIO.", "HAMLET, HORATIO.", "HAMLET. HORATIO.", "HAMLET & HORATIO."]
)
def test_what_several_say_at_once_is_no_roles(several):
    got = play(f"HAMLET.\nOne.\n\n{several}\nAmen.\n\nHORATIO.\nTwo.\n")
    assert got == {"HAMLET": [["One."]], "HORATIO": [["Two."]]}


def test_abbreviations_become_persons_where_only_one_fits():
    text = "Cor.\nA.\n\nCorn.\nB.\n\n1 Clown.\nC.\n\n2 Car.\nD.\n\nP. King.\nE.\n\nH.\nF.\n\nFirst Witch.\nG.\n"
    got = play(text)
    assert list(got) == ["CORDELIA", "CORNWALL", "FIRST CLOWN", "SECOND CARRIER", "P. KING", "FIRST WITCH"]


def test_titles_of_songs_are_not_sung():
    got = play("HAMLET.\nListen.\n\nSONG.\n\nUnder the tree.\n\nII.\nAnd again.\n")
    assert got == {"HAMLET": [["Listen.", "Under the tree.", "And again."]]}


def test_the_signature_of_a_letter_is_no_heading():
    got = play("HAMLET.\nI read: come at once.\nHORATIO.\n\nHORATIO.\nIt is true.\n")
    assert got["HORATIO"] == [["It is true."]]


def test_the_list_of_persons_does_not_speak():
    assert play("") == {}
