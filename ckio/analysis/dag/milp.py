"""The least choice as an integer program, for HiGHS: slower than the cut, and written differently.

    minimise    sum_o saving(o) s_o + sum_v weight(v) u_v + sum_v again(v) r_v
    where       r_v <= s_o               (v, o) in E_b
                r_v <= r_q + u_q         v is computed from q
                1   <= r_v + u_v         v is required

with s_o, u_v and r_v in {0, 1}: o is saved, v is stored, v is there again without being stored.
What cannot be done has no variable but 0. This is there to check the cut.
"""

import numpy as np

from ckio.analysis.dag.numbered import Answer, Ints, Numbered


def integer_program(graph: Numbered, /) -> Answer:
    """A least choice, as good as HiGHS can tell in floats. One must be possible."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, vstack

    values, locations = len(graph.values), len(graph.locations)
    size = locations + 2 * values
    if not values:
        return Answer(np.zeros(0, np.bool_), np.zeros(0, np.bool_))  # HiGHS wants a variable
    saved, stored, again = 0, locations, locations + values
    value, location = graph.overwrites
    argument, result = graph.arguments

    def rows(*terms: tuple[float, Ints]) -> csr_array:
        """A row for each of these numbers: the sum of coefficient times variable."""
        count = len(terms[0][1])
        number = np.tile(np.arange(count), len(terms))
        coefficients = np.repeat([coefficient for coefficient, _ in terms], count)
        columns = np.concatenate([variables for _, variables in terms])
        return csr_array((coefficients, (number, columns)), shape=(count, size))

    at_least = vstack(
        [
            rows((1, saved + location), (-1, again + value)),
            rows((1, again + argument), (1, stored + argument), (-1, again + result)),
            rows((1, again + graph.required), (1, stored + graph.required)),
        ]
    )
    least = np.zeros(at_least.shape[0])
    least[len(least) - len(graph.required) :] = 1
    weights = np.concatenate([graph.saving, graph.weight, graph.again])
    possible = np.isfinite(weights)
    weights[~possible] = 0
    found = milp(
        weights / max(weights.max(initial=0), 1e-300),
        constraints=LinearConstraint(at_least, least, np.inf),
        integrality=np.ones(size),
        bounds=Bounds(0, possible.astype(float)),
        options={"mip_rel_gap": 0},
    )
    chosen = found.x > 0.5
    return Answer(saved=chosen[:stored], stored=chosen[stored:again])
