"""
Change points
=============

When did the flow of the Nile change? Yearly volume at Aswan, 1871–1970, in 10⁸ m³ (Cobb 1978): in hindsight, online, and ahead.
"""

import sys

import numpy as np

import structgp as sg

FLOW = np.fromstring(
    """
    1120 1160  963 1210 1160 1160  813 1230 1370 1140  995  935 1110  994 1020  960 1180  799  958 1140
    1100 1210 1150 1250 1260 1220 1030 1100  774  840  874  694  940  833  701  916  692 1020 1050  969
     831  726  456  824  702 1120 1100  832  764  821  768  845  864  862  698  845  744  796 1040  759
     781  865  845  944  984  897  822 1010  771  676  649  846  812  742  801 1040  860  874  848  890
     744  749  838 1050  918  986  797  923  975  815 1020  906  901 1170  912  746  919  718  714  740
    """,
    sep=" ",
)
year = np.arange(1871, 1871 + FLOW.size, dtype=float)

# %%
# Segments with a level that may drift a little, whose scale is unknown; learned together with how often a segment ends.

centred = (FLOW - FLOW.mean()) / FLOW.std()
level_and_drift = sg.GP(sg.Constant(1.0) + sg.Matern32(20.0, 0.1), sg.Gaussian(0.5))
segments = sg.MarkovSegment(level_and_drift, sg.UnknownScale(2.0, 2.0))
found = sg.ChangePoints(segments, 0.01, hypotheses=100).fit(centred, year)
print(found)
print(found.learning)
print(f"a segment lasts {1 / float(found.model.hazard.rate):.0f} years on average")

# %%
# In hindsight: the most probable segmentation, and how probable each number of changes is.

print("most probable segmentation: a new segment in", ", ".join(f"{year[n]:.0f}" for n in found.most_probable) or "no year")
print("number of changes:", ", ".join(f"{n}: {p:.0%}" for n, p in enumerate(found.number_of_changes) if p > 0.05))

# %%
# Online: when would it have been noticed?

for alert in found.alerts(probability=0.8, window=30, delay=3):
    print(f"in {year[alert.noticed]:.0f}: since {year[alert.start]:.0f} it is different ({alert.probability:.0%} sure)")

# %%
# Ahead: the stream goes on where the record ends. Four wet years would be told as a change.

stream = found.stream
low, high = (FLOW.mean() + FLOW.std() * end for end in stream.predict(1971.0).interval(0.9))
print(f"the flow of 1971 lies between {low:.0f} and {high:.0f} with probability 0.9")
for value in (2.5, 2.7, 2.4, 2.6):
    stream = stream.update(value, float(stream.belief.time) + 1)
print(f"after four wet years a change in the last 5 years has probability {stream.change_probability(5):.0%}")

figure = found.plot()[0].figure
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
    print(f"picture: {sys.argv[1]}")
