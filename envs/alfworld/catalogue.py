"""What stands in which room and what lies where: the tables of the household generator.

They are written from common sense, in the class names of ALFRED's vocabulary, so that everything
that reads ALFWorld's games (upstream's naming, its experts, prompts) knows the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

__all__ = [
    "FURNITURE",
    "ROOMS",
    "SIZES",
    "THINGS",
    "Furniture",
    "Room",
    "Size",
    "Thing",
]

Size: TypeAlias = Literal["small", "medium", "large"]
"""How much a household holds; see :class:`Room`."""
SIZES: tuple[Size, ...] = get_args(Size)


@dataclass(frozen=True, slots=True)
class Furniture:
    """A class of receptacles."""

    name: str
    openable: bool = False
    beside: int = 1
    """Most of them that stand together, so that one place reaches them all."""
    stands_at: tuple[str, ...] = ()
    """Furniture that it may stand on or belong to, so that one place reaches both."""
    holds_one: bool = False
    """Made for one thing: at most one lies there at the start, and no task puts two."""
    basin_of: str = ""
    """Fixture whose basin this is; ALFRED's ids of basins begin with it."""


FURNITURE: Mapping[str, Furniture] = MappingProxyType(
    {
        piece.name: piece
        for piece in (
            Furniture("ArmChair"),
            Furniture("BathtubBasin", basin_of="Bathtub"),
            Furniture("Bed"),
            Furniture("Cabinet", openable=True, beside=2),
            Furniture("Cart"),
            Furniture("CoffeeMachine", stands_at=("CounterTop",), holds_one=True),
            Furniture("CoffeeTable"),
            Furniture("CounterTop"),
            Furniture("Desk"),
            Furniture("DiningTable"),
            Furniture(
                "Drawer", openable=True, beside=3, stands_at=("Desk", "Dresser", "SideTable")
            ),
            Furniture("Dresser"),
            Furniture("Fridge", openable=True),
            Furniture("GarbageCan"),
            Furniture("HandTowelHolder", holds_one=True),
            Furniture("LaundryHamper"),
            Furniture("Microwave", openable=True),
            Furniture("Ottoman"),
            Furniture("Safe", openable=True),
            Furniture("Shelf", beside=3),
            Furniture("SideTable"),
            Furniture("SinkBasin", basin_of="Sink"),
            Furniture("Sofa"),
            Furniture("StoveBurner", beside=4, holds_one=True),
            Furniture("TVStand"),
            Furniture("Toaster", stands_at=("CounterTop",), holds_one=True),
            Furniture("Toilet"),
            Furniture("ToiletPaperHanger", holds_one=True),
            Furniture("TowelHolder", holds_one=True),
        )
    }
)
"""Receptacles by class."""


@dataclass(frozen=True, slots=True)
class Room:
    """A kind of room: how many pieces of each furniture it has, and how much it holds.

    The medium sizes are near those of ALFRED's floor plans, in which kitchens are the fullest.
    """

    first_number: int
    """Numbers of its floor plans begin behind this, as ALFRED's do."""
    furniture: Mapping[Size, Mapping[str, tuple[int, ...]]]
    """Per size and class: the counts that occur, equally often."""
    receptacles: Mapping[Size, tuple[int, int]]
    """Fewest and most receptacles."""
    things: Mapping[Size, tuple[int, int]]
    """Fewest and most things that lie in them."""


def _range(low: int, high: int) -> tuple[int, ...]:
    return tuple(range(low, high + 1))


_RARE = (0, 0, 0, 0, 0, 0, 1)
_SELDOM = (0, 0, 1)
_MAYBE = (0, 1)
_ONE = (1,)

ROOMS: Mapping[str, Room] = MappingProxyType(
    {
        "kitchen": Room(
            first_number=0,
            furniture={
                "small": {
                    "CounterTop": _ONE,
                    "SinkBasin": _ONE,
                    "Fridge": _ONE,
                    "Microwave": _ONE,
                    "Cabinet": _range(0, 3),
                    "Drawer": _range(0, 2),
                    "DiningTable": _MAYBE,
                    "GarbageCan": _MAYBE,
                    "CoffeeMachine": _SELDOM,
                    "StoveBurner": _MAYBE,
                    "Shelf": _SELDOM,
                    "SideTable": _SELDOM,
                },
                "medium": {
                    "CounterTop": _range(1, 3),
                    "SinkBasin": _ONE,
                    "Fridge": _ONE,
                    "Microwave": _ONE,
                    "CoffeeMachine": _ONE,
                    "Toaster": _ONE,
                    "GarbageCan": _ONE,
                    "StoveBurner": (4, 4, 4, 2),
                    "Cabinet": _range(4, 16),
                    "Drawer": _range(2, 9),
                    "DiningTable": (0, 1, 1),
                    "Shelf": (0, 0, 0, 2, 3),
                    "SideTable": _SELDOM,
                    "Safe": _RARE,
                },
                "large": {
                    "CounterTop": _range(2, 4),
                    "SinkBasin": _ONE,
                    "Fridge": _ONE,
                    "Microwave": _ONE,
                    "CoffeeMachine": _ONE,
                    "Toaster": _ONE,
                    "GarbageCan": _ONE,
                    "StoveBurner": (4, 6),
                    "Cabinet": _range(12, 22),
                    "Drawer": _range(8, 14),
                    "DiningTable": _range(1, 2),
                    "Shelf": _range(2, 4),
                    "SideTable": _MAYBE,
                    "Safe": _SELDOM,
                },
            },
            receptacles={"small": (6, 9), "medium": (18, 42), "large": (38, 54)},
            things={"small": (8, 12), "medium": (28, 50), "large": (48, 64)},
        ),
        "living room": Room(
            first_number=200,
            furniture={
                "small": {
                    "Sofa": _ONE,
                    "SideTable": _range(1, 2),
                    "ArmChair": _range(0, 2),
                    "CoffeeTable": _MAYBE,
                    "DiningTable": _SELDOM,
                    "Drawer": _range(0, 2),
                    "Shelf": _range(0, 2),
                    "Dresser": _SELDOM,
                    "TVStand": _SELDOM,
                    "Ottoman": _SELDOM,
                    "Cabinet": _SELDOM,
                    "GarbageCan": _MAYBE,
                },
                "medium": {
                    "Sofa": (1, 1, 2),
                    "SideTable": _range(1, 3),
                    "ArmChair": (0, 1, 1, 2),
                    "CoffeeTable": (0, 1, 1, 2),
                    "DiningTable": _MAYBE,
                    "Drawer": (0, *_range(1, 7)),
                    "Shelf": (0, 0, *_range(1, 5)),
                    "Dresser": _SELDOM,
                    "Desk": _SELDOM,
                    "TVStand": _SELDOM,
                    "Ottoman": _SELDOM,
                    "Cabinet": (0, 0, 0, 0, 2, 4),
                    "GarbageCan": _ONE,
                    "Safe": _RARE,
                },
                "large": {
                    "Sofa": _range(1, 2),
                    "SideTable": _range(2, 4),
                    "ArmChair": _range(1, 3),
                    "CoffeeTable": _range(1, 2),
                    "DiningTable": _range(1, 2),
                    "Drawer": _range(6, 18),
                    "Shelf": _range(2, 10),
                    "Dresser": _ONE,
                    "Desk": _MAYBE,
                    "TVStand": _MAYBE,
                    "Ottoman": _MAYBE,
                    "Cabinet": _range(0, 8),
                    "GarbageCan": _ONE,
                    "Safe": _SELDOM,
                },
            },
            receptacles={"small": (6, 9), "medium": (6, 26), "large": (24, 44)},
            things={"small": (8, 12), "medium": (13, 30), "large": (32, 50)},
        ),
        "bedroom": Room(
            first_number=300,
            furniture={
                "small": {
                    "Bed": _ONE,
                    "Desk": _MAYBE,
                    "SideTable": _range(0, 2),
                    "Dresser": _SELDOM,
                    "Drawer": _range(1, 3),
                    "Shelf": _range(0, 2),
                    "ArmChair": _SELDOM,
                    "LaundryHamper": _SELDOM,
                    "GarbageCan": _MAYBE,
                    "Safe": _RARE,
                },
                "medium": {
                    "Bed": (1, 1, 1, 2),
                    "Desk": (0, 1, 1, 1, 2),
                    "SideTable": (0, 1, 1, 2),
                    "Dresser": _MAYBE,
                    "Drawer": (2, 3, 4, 4, 5, 6, 8, 10),
                    "Shelf": (0, 0, 1, 2, 3, 6),
                    "DiningTable": _RARE,
                    "ArmChair": _SELDOM,
                    "LaundryHamper": _SELDOM,
                    "Cabinet": (0, 0, 0, 0, 0, 2, 4),
                    "GarbageCan": _ONE,
                    "Safe": _RARE,
                },
                "large": {
                    "Bed": _range(1, 2),
                    "Desk": _range(1, 2),
                    "SideTable": _range(1, 3),
                    "Dresser": _range(1, 2),
                    "Drawer": _range(8, 17),
                    "Shelf": _range(3, 10),
                    "ArmChair": _range(0, 2),
                    "LaundryHamper": _MAYBE,
                    "Cabinet": _range(0, 6),
                    "GarbageCan": _ONE,
                    "Safe": _SELDOM,
                },
            },
            receptacles={"small": (6, 9), "medium": (7, 27), "large": (24, 44)},
            things={"small": (8, 12), "medium": (14, 32), "large": (34, 52)},
        ),
        "bathroom": Room(
            first_number=400,
            furniture={
                "small": {
                    "SinkBasin": _ONE,
                    "Toilet": _ONE,
                    "CounterTop": _MAYBE,
                    "BathtubBasin": _MAYBE,
                    "TowelHolder": _MAYBE,
                    "HandTowelHolder": _MAYBE,
                    "ToiletPaperHanger": _MAYBE,
                    "Cabinet": _range(0, 3),
                    "Drawer": _range(0, 2),
                    "Shelf": _range(0, 2),
                    "GarbageCan": _MAYBE,
                    "Cart": _SELDOM,
                },
                "medium": {
                    "SinkBasin": (1, 1, 2),
                    "Toilet": _ONE,
                    "CounterTop": (0, 1, 1, 1, 1, 2),
                    "BathtubBasin": (0, 1, 1),
                    "TowelHolder": (1, 1, 2),
                    "HandTowelHolder": (1, 1, 2, 3),
                    "ToiletPaperHanger": _ONE,
                    "Cabinet": (0, *_range(2, 7)),
                    "Drawer": (0, 0, 0, *_range(1, 7)),
                    "Shelf": (0, 0, 0, 1, 2, 3),
                    "GarbageCan": _ONE,
                    "Cart": _RARE,
                    "Dresser": _RARE,
                    "LaundryHamper": _RARE,
                },
                "large": {
                    "SinkBasin": (1, 2, 2),
                    "Toilet": _ONE,
                    "CounterTop": _range(1, 3),
                    "BathtubBasin": _ONE,
                    "TowelHolder": _range(1, 3),
                    "HandTowelHolder": _range(2, 4),
                    "ToiletPaperHanger": _range(1, 2),
                    "Cabinet": _range(4, 12),
                    "Drawer": _range(4, 12),
                    "Shelf": _range(1, 5),
                    "GarbageCan": _ONE,
                    "Cart": _MAYBE,
                    "Dresser": _SELDOM,
                    "LaundryHamper": _MAYBE,
                },
            },
            receptacles={"small": (6, 9), "medium": (10, 22), "large": (22, 40)},
            things={"small": (8, 12), "medium": (10, 21), "large": (22, 36)},
        ),
    }
)
"""The four kinds of rooms."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A class of objects."""

    name: str
    rooms: Mapping[str, int]
    """How often it lies about in a kind of room, relative to other things there."""
    homes: Mapping[str, int]
    """Where it lies at the start, and how often."""
    fits: tuple[str, ...] = ()
    """Where else it may be put."""
    cleanable: bool = False
    heatable: bool = False
    coolable: bool = False
    sliceable: bool = False
    vessel: bool = False
    """Other things fit into it."""
    pickupable: bool = True
    lamp: bool = False
    most: int = 3
    """Most of them in a room, unless a task needs more."""

    @property
    def places(self) -> tuple[str, ...]:
        """Every furniture that may hold it."""
        return (*self.homes, *self.fits)


def _edible(name: str, homes: Mapping[str, int], *fits: str, heats: bool = True) -> Thing:
    return Thing(
        name,
        {"kitchen": 5},
        homes,
        fits,
        cleanable=name != "Bread",
        heatable=heats,
        coolable=True,
        sliceable=name != "Egg",
    )


def _cutlery(name: str) -> Thing:
    homes = {"CounterTop": 2, "Drawer": 3, "DiningTable": 3, "SinkBasin": 1}
    return Thing(name, {"kitchen": 4}, homes, ("SideTable",), cleanable=True)


def _small_belonging(name: str, rooms: Mapping[str, int], **more: int) -> Thing:
    """Return a thing that fits into a pocket: tables, drawers, seats, the safe."""
    homes = {"Desk": 3, "Dresser": 3, "SideTable": 3, "Drawer": 2, "Shelf": 2, "CoffeeTable": 3}
    homes |= {"DiningTable": 2, "CounterTop": 1} | more
    fits = tuple(place for place in ("Safe", "TVStand") if place not in homes)
    return Thing(name, rooms, homes, fits)


_LIVING = {"living room": 3, "bedroom": 3}

THINGS: Mapping[str, Thing] = MappingProxyType(
    {
        thing.name: thing
        for thing in (
            # What is eaten, and what one eats, cooks and drinks with.
            _edible(
                "Apple",
                {"CounterTop": 3, "DiningTable": 3, "Fridge": 3, "SinkBasin": 1, "GarbageCan": 1},
                "Microwave",
                "SideTable",
            ),
            _edible(
                "Bread",
                {"CounterTop": 4, "DiningTable": 3, "Fridge": 1},
                "Microwave",
                "Toaster",
                "GarbageCan",
                "SideTable",
            ),
            _edible(
                "Egg",
                {"Fridge": 5, "CounterTop": 2, "DiningTable": 1, "SinkBasin": 1, "GarbageCan": 1},
                "Microwave",
                "SideTable",
            ),
            _edible(
                "Lettuce",
                {"Fridge": 4, "CounterTop": 3, "DiningTable": 2, "SinkBasin": 1, "GarbageCan": 1},
                "SideTable",
                heats=False,
            ),
            _edible(
                "Potato",
                {"CounterTop": 3, "Fridge": 2, "SinkBasin": 2, "DiningTable": 1, "GarbageCan": 1},
                "Microwave",
                "SideTable",
                "Cabinet",
            ),
            _edible(
                "Tomato",
                {"CounterTop": 3, "Fridge": 3, "DiningTable": 2, "SinkBasin": 1, "GarbageCan": 1},
                "Microwave",
                "SideTable",
            ),
            _cutlery("Fork"),
            _cutlery("Spoon"),
            _cutlery("ButterKnife"),
            _cutlery("Knife"),
            Thing(
                "Spatula",
                {"kitchen": 3},
                {"CounterTop": 3, "Drawer": 3, "DiningTable": 1, "SinkBasin": 1},
                ("SideTable",),
                cleanable=True,
            ),
            Thing(
                "Ladle",
                {"kitchen": 2},
                {"CounterTop": 2, "Drawer": 3, "Cabinet": 2, "DiningTable": 1, "SinkBasin": 1},
                ("SideTable",),
                cleanable=True,
            ),
            Thing(
                "Bowl",
                {"kitchen": 4, "living room": 1, "bedroom": 1},
                {"Cabinet": 4, "CounterTop": 2, "DiningTable": 2, "Shelf": 2, "SinkBasin": 1}
                | {"Microwave": 1, "Fridge": 1, "CoffeeTable": 1, "SideTable": 1, "Desk": 1}
                | {"Dresser": 1},
                cleanable=True,
                heatable=True,
                coolable=True,
                vessel=True,
            ),
            Thing(
                "Cup",
                {"kitchen": 4},
                {"Cabinet": 4, "CounterTop": 2, "DiningTable": 2, "Shelf": 2, "SinkBasin": 1}
                | {"Fridge": 1, "Microwave": 1, "SideTable": 1},
                ("CoffeeMachine",),
                cleanable=True,
                heatable=True,
                coolable=True,
                vessel=True,
            ),
            Thing(
                "Mug",
                {"kitchen": 4, "living room": 1, "bedroom": 2},
                {"Cabinet": 4, "CounterTop": 2, "DiningTable": 1, "Shelf": 2, "SinkBasin": 1}
                | {"CoffeeMachine": 2, "Microwave": 1, "Desk": 3, "CoffeeTable": 1, "SideTable": 1},
                ("Dresser",),
                cleanable=True,
                heatable=True,
                coolable=True,
                vessel=True,
            ),
            Thing(
                "Plate",
                {"kitchen": 4, "living room": 1},
                {"Cabinet": 4, "CounterTop": 2, "DiningTable": 3, "Shelf": 2, "SinkBasin": 1}
                | {"Fridge": 1, "CoffeeTable": 2, "SideTable": 1},
                ("Microwave",),
                cleanable=True,
                heatable=True,
                coolable=True,
                vessel=True,
            ),
            Thing(
                "Pan",
                {"kitchen": 3},
                {"StoveBurner": 4, "Cabinet": 3, "CounterTop": 2, "SinkBasin": 1},
                ("DiningTable", "Fridge", "Shelf"),
                cleanable=True,
                coolable=True,
                vessel=True,
            ),
            Thing(
                "Pot",
                {"kitchen": 3},
                {"StoveBurner": 4, "Cabinet": 3, "CounterTop": 1, "Shelf": 1, "SinkBasin": 1},
                ("DiningTable", "Fridge"),
                cleanable=True,
                coolable=True,
                vessel=True,
            ),
            Thing(
                "Kettle",
                {"kitchen": 2},
                {"StoveBurner": 3, "CounterTop": 2, "Cabinet": 2, "Shelf": 1},
                ("SinkBasin", "DiningTable", "SideTable"),
                cleanable=True,
                most=2,
            ),
            Thing(
                "Glassbottle",
                {"kitchen": 2},
                {"CounterTop": 2, "Cabinet": 2, "Shelf": 2, "DiningTable": 1, "GarbageCan": 1}
                | {"Fridge": 1},
                ("SideTable", "SinkBasin"),
                coolable=True,
            ),
            Thing(
                "WineBottle",
                {"kitchen": 2},
                {"CounterTop": 2, "Cabinet": 2, "Fridge": 2, "Shelf": 1, "DiningTable": 1},
                ("GarbageCan", "SideTable"),
                coolable=True,
                most=2,
            ),
            Thing(
                "PepperShaker",
                {"kitchen": 3},
                {"CounterTop": 2, "Cabinet": 2, "Drawer": 2, "Shelf": 1, "DiningTable": 2},
                ("SideTable",),
                most=2,
            ),
            Thing(
                "SaltShaker",
                {"kitchen": 3},
                {"CounterTop": 2, "Cabinet": 2, "Drawer": 2, "Shelf": 1, "DiningTable": 2},
                ("SideTable",),
                most=2,
            ),
            # What one cleans and washes with.
            Thing(
                "DishSponge",
                {"kitchen": 3, "bathroom": 1},
                {"SinkBasin": 3, "CounterTop": 3, "Drawer": 1, "Cabinet": 1, "BathtubBasin": 1},
                ("GarbageCan", "Cart", "Shelf"),
                cleanable=True,
            ),
            Thing(
                "PaperTowelRoll",
                {"kitchen": 2},
                {"CounterTop": 4, "DiningTable": 1, "Shelf": 1},
                ("GarbageCan", "Cabinet", "SideTable"),
                most=1,
            ),
            Thing(
                "SoapBottle",
                {"kitchen": 2, "bathroom": 5},
                {"CounterTop": 4, "Cabinet": 3, "Drawer": 1, "Shelf": 2, "Toilet": 1, "Cart": 2},
                ("GarbageCan", "BathtubBasin", "SinkBasin", "Dresser"),
            ),
            Thing(
                "SprayBottle",
                {"bathroom": 4, "living room": 1},
                {"CounterTop": 3, "Cabinet": 3, "Drawer": 1, "Shelf": 2, "Toilet": 2, "Cart": 2}
                | {"SideTable": 1, "GarbageCan": 1},
                ("Dresser", "DiningTable", "CoffeeTable"),
            ),
            Thing(
                "SoapBar",
                {"bathroom": 5},
                {"SinkBasin": 3, "CounterTop": 3, "BathtubBasin": 2, "Toilet": 1, "Shelf": 1}
                | {"Cabinet": 1, "Drawer": 1, "Cart": 1, "GarbageCan": 1},
                cleanable=True,
            ),
            Thing(
                "Cloth",
                {"bathroom": 4, "bedroom": 1},
                {"CounterTop": 2, "BathtubBasin": 2, "SinkBasin": 1, "Cabinet": 2, "Drawer": 3}
                | {"Shelf": 1, "Cart": 1, "LaundryHamper": 2, "Dresser": 2},
                ("Toilet", "GarbageCan", "Desk"),
                cleanable=True,
            ),
            Thing(
                "HandTowel",
                {"bathroom": 4},
                {"HandTowelHolder": 6, "CounterTop": 1, "SinkBasin": 1, "Cabinet": 1},
                ("BathtubBasin", "Toilet", "Cart", "LaundryHamper", "Shelf"),
            ),
            Thing(
                "Towel",
                {"bathroom": 3},
                {"TowelHolder": 6, "BathtubBasin": 1, "LaundryHamper": 2, "Shelf": 1},
                ("Cabinet",),
            ),
            Thing(
                "ToiletPaper",
                {"bathroom": 5},
                {"ToiletPaperHanger": 3, "Toilet": 3, "Cabinet": 3, "CounterTop": 1, "Drawer": 1}
                | {"Shelf": 1, "Cart": 1},
                ("GarbageCan", "Dresser"),
            ),
            Thing(
                "TissueBox",
                {"bathroom": 2, "living room": 2, "bedroom": 2},
                {"CounterTop": 2, "Toilet": 2, "Cabinet": 1, "Shelf": 2, "SideTable": 2}
                | {"CoffeeTable": 2, "Dresser": 2, "Desk": 2, "Drawer": 1, "Cart": 1},
                ("TVStand", "DiningTable", "GarbageCan"),
            ),
            Thing(
                "Candle",
                {"bathroom": 4, "living room": 1},
                {"CounterTop": 3, "Toilet": 2, "Cabinet": 2, "Drawer": 1, "Shelf": 2, "Cart": 1}
                | {"CoffeeTable": 2, "SideTable": 1, "Dresser": 1, "DiningTable": 1},
                ("BathtubBasin", "TVStand"),
            ),
            # What one owns, reads, sits on and looks at.
            _small_belonging("CellPhone", _LIVING, Bed=2, Sofa=1, ArmChair=1),
            _small_belonging("CreditCard", _LIVING, Sofa=1, ArmChair=1, Ottoman=1),
            _small_belonging("KeyChain", _LIVING, Sofa=1, ArmChair=1, Ottoman=1, Safe=1),
            _small_belonging("Watch", _LIVING, Safe=1, TVStand=1),
            _small_belonging("CD", {"bedroom": 4}, Safe=1, GarbageCan=1),
            _small_belonging("Pen", {"bedroom": 4, "living room": 1}, GarbageCan=1),
            _small_belonging("Pencil", {"bedroom": 4, "living room": 1}, GarbageCan=1),
            _small_belonging(
                "RemoteControl", {"living room": 4}, Sofa=2, ArmChair=2, Ottoman=1, TVStand=2
            ),
            Thing(
                "Book",
                {"living room": 2, "bedroom": 4},
                {"Desk": 3, "Bed": 3, "SideTable": 2, "Shelf": 3, "Drawer": 1, "Dresser": 2}
                | {"CoffeeTable": 2, "Sofa": 1, "DiningTable": 1},
                ("ArmChair", "Ottoman", "Cabinet", "TVStand"),
            ),
            Thing(
                "Newspaper",
                {"living room": 4},
                {"Sofa": 2, "CoffeeTable": 3, "SideTable": 2, "ArmChair": 1, "DiningTable": 2}
                | {"Drawer": 1, "GarbageCan": 1, "Ottoman": 1, "Dresser": 1, "Shelf": 1},
                ("TVStand", "Cabinet", "Desk"),
            ),
            Thing(
                "Laptop",
                {"living room": 3, "bedroom": 3},
                {"Desk": 4, "Bed": 3, "Sofa": 2, "CoffeeTable": 3, "DiningTable": 2}
                | {"ArmChair": 1, "Dresser": 1},
                ("SideTable", "Ottoman"),
                most=2,
            ),
            Thing(
                "Pillow",
                {"living room": 3, "bedroom": 4},
                {"Bed": 6, "Sofa": 4, "ArmChair": 3, "Ottoman": 1},
                ("Shelf",),
            ),
            Thing(
                "TeddyBear",
                {"bedroom": 2},
                {"Bed": 4, "ArmChair": 2, "Shelf": 1, "Desk": 1},
                ("Dresser", "Sofa", "SideTable"),
                most=2,
            ),
            Thing(
                "AlarmClock",
                {"bedroom": 4},
                {"SideTable": 4, "Desk": 3, "Dresser": 3, "Shelf": 3},
                ("DiningTable", "Drawer"),
            ),
            Thing(
                "Box",
                {"living room": 3, "bedroom": 2},
                {"Sofa": 2, "CoffeeTable": 2, "DiningTable": 2, "Dresser": 2, "Shelf": 2}
                | {"Desk": 1, "SideTable": 1, "Ottoman": 1},
                ("ArmChair", "Cabinet", "Bed"),
                vessel=True,
                most=2,
            ),
            Thing(
                "Statue",
                {"living room": 4},
                {"Shelf": 3, "Dresser": 3, "CoffeeTable": 2, "SideTable": 3, "DiningTable": 2}
                | {"TVStand": 1, "Desk": 1},
                ("Safe", "Cabinet"),
            ),
            Thing(
                "Vase",
                {"living room": 4},
                {"Shelf": 3, "Dresser": 2, "CoffeeTable": 2, "SideTable": 3, "DiningTable": 2}
                | {"TVStand": 1, "Desk": 1, "Cabinet": 1},
                ("Safe",),
            ),
            Thing(
                "WateringCan",
                {"living room": 2},
                {"SideTable": 2, "DiningTable": 1, "Shelf": 1, "Cabinet": 1, "Dresser": 1},
                ("CoffeeTable",),
                most=2,
            ),
            Thing(
                "BasketBall",
                {"bedroom": 2},
                {"Bed": 1, "Desk": 1, "Dresser": 1, "Shelf": 1, "ArmChair": 2},
                ("Sofa", "LaundryHamper"),
                most=2,
            ),
            Thing(
                "BaseballBat",
                {"bedroom": 2},
                {"Bed": 3, "Desk": 1, "Shelf": 1},
                ("ArmChair", "Dresser"),
                most=1,
            ),
            Thing(
                "TennisRacket",
                {"bedroom": 2},
                {"Bed": 3, "Desk": 1, "Dresser": 1, "Shelf": 1},
                ("ArmChair", "SideTable"),
                most=2,
            ),
            # What stays where it is.
            Thing(
                "DeskLamp",
                {"living room": 3, "bedroom": 4},
                {"SideTable": 4, "Desk": 4, "Dresser": 3, "Shelf": 1},
                pickupable=False,
                lamp=True,
                most=2,
            ),
            Thing(
                "HousePlant",
                {"kitchen": 2, "living room": 3, "bathroom": 2},
                {"CounterTop": 3, "DiningTable": 3, "SideTable": 2, "CoffeeTable": 1, "Shelf": 1}
                | {"Dresser": 1, "TVStand": 1},
                pickupable=False,
                most=1,
            ),
            Thing(
                "Television",
                {"living room": 3, "bedroom": 1},
                {"TVStand": 6, "Dresser": 2, "SideTable": 1},
                pickupable=False,
                most=1,
            ),
        )
    }
)
"""Objects by class."""
