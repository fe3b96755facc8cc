"""Records: the named numbers and addresses that kernels read and write, `t.dim`, `reals(t.u)[j]`.

A record has one owner, a Python object that allocates the arrays and writes their addresses. `integers` are 64-bit
numbers and addresses (of arrays, of other records, of parts; 0 is none), `reals` are float64.
"""

from __future__ import annotations

from driftls.compiling.parts import record, record_at

# Rows of observations or arms. Dense: values is (count, dim). Sparse: row i has values[p] at indices[p] for
# start[i] <= p < stop[i] <= room. Crossed (arms > 0): row i is the user of line i // arms, moved by shifts[i % arms]
# features, and, if shared, in front of that unmoved; features is how many a user has, behind which standardised ones may
# have a constant (behind 1) that no arm moves. slots: of arms that recur. units: of the features, or 0; scratch: room for
# standardised rows, which have the model's constant, if there is one, as their last feature. home: room for copied values,
# which is where values are unless a caller's are read where they lie; space: for how many; wanted: for how many there must be,
# for rows that found none.
ROWS = record(
    """
    address sparse dim count values indices start stop y room slots
    shifts arms shared features behind
    units scratch home space wanted
    """
)
rows_at = record_at(ROWS, "rows")

# Units of features (units.py): for each, how often it was not 0, sums of squares and values, and, frozen between two
# looks, mean, unit, the weight that is in the unit, and the largest square that asks for no look; known: where rows are
# sparse, which features were seen, and how many; pool_: sums of the dense arms of a round alone. dim is how many features
# there are, and the intercept's index; period: if not 0, feature j has the unit of feature j % period, and, if centred, the
# last of these is a constant; centres: how many sparse features are centred. gaps: what a sparse row lacks is missing, not 0;
# partner: of a cross, 1 + the category that is 1 wherever it may be, 1 + itself if there is none. What is kept of feature j
# lies at j every.
UNITS = record(
    """
    address dim period every centred centres intercept scales asked count squares sums means unit weight limit
    known known_count gaps partner fresh pool_count pool_squares pool_sums pool_jumped
    """,
    "n next_look soonest constant offset rewards reward_sum reward_squares",
)
units = record_at(UNITS, "u")

# Counters of a history: which kind, for how many rows there is room, how many are held, were ever seen, and how much
# of the arena of sparse entries is used.
COUNTS = record("kind capacity held seen used")

TRACKER = record(
    # theta_j = a u_j + b g_j, whatever the scheme; coordinate j lies at j (dense rows), or at j stride
    """
    address dim sparse stride u g extra
    """
    # where rows come from and go to, and the uniforms drawn ahead
    """
    history counts block tape tape_size cursor
    """
    # parts: a row enters the state, leaves it, and the steps that follow
    """
    enter forget descend ahead
    """
    # arrays of a scheme: residuals of SAG, sums of exact methods, lines to work in; the rows held with their features
    # numbered, which these are (0: all), and the number of each (cg.py)
    """
    residual gram inverse moment gain scratch packed features places
    """
    # settings: steps a row, whether rows are drawn, guard, normalise each step; when and how far to look ahead
    """
    steps draws guard normalise lookahead averaging
    """
    # gamma_n and lambda_n: kind 0 power, 1 table, 2 normalised
    """
    step_kind step_table step_length ridge_kind ridge_table ridge_length
    """
    # exact: how theta is found, rows since; what Python is asked to do
    """
    route asked forgotten refactorised left fading eager version
    """
    # what the last call says; whether what is predicted before a row is learned is compared with y
    """
    fault_row done checked noted watch
    """,
    """
    a b p q
    step_scale step_offset step_exponent ridge_scale ridge_offset ridge_exponent
    gamma lam ridge
    max_norm2 error2 max_y2
    r weight taken
    since due every
    scale discount next_try ridge_now entered settled accounted
    watched progressive baseline mean_y
    """,
)
tracker = record_at(TRACKER, "t")
counts = record_at(COUNTS)

WIDTH = record(
    # parts: scores of arms, a squared width, a row was learned, an arm is new, is an arm still the same, a round begins
    """
    address score width2 enter open same begin
    """
    # the policy's tape of uniforms, from which widths draw
    """
    tape tape_size cursor
    """
    # diagonal: sums of squares, and ridge/(ridge + s_j); centred: sums, and what each feature adds to Q (kernels/centred.py);
    # exact: products, for so many arms there is room, BLAS
    """
    dim squares spread sums share products room blas
    """
    # arms that recur, by slot: for how many there is room, which are in use, their non-zeros and features. What slot m
    # has of feature j lies at m line + j stride; stride 0: dense rows, feature j at j
    """
    slots line stride live sizes arms
    """
    # exact: bounds of squared widths, the row after which each was found, of which version of the inverse; for one call
    # whether every score is asked for, whether the arms are those of the last call, and which arms are allowed
    """
    bounds stamps version every still allowed
    """
    # phi_m = P_m phi + Q_m arms; rows drawn for arms without a slot, room to work in
    """
    phi P Q drawn scratch
    """
    # a tracker of the width's own, for an inverse that the policy's does not keep; what is sampled, and from what
    """
    own factor direction
    """
    # settings
    """
    steps printed windowed
    """
    # state
    """
    clamped
    """,
    """
    ridge scale discount step_scale last_step entered n prior rest
    """,
)
width = record_at(WIDTH, "w")

POLICY = record(
    # models: addresses of trackers and widths, one a slot (one for all arms: slot 0); disjoint: one model an arm; frozen:
    # nothing is noted of what is offered
    """
    address trackers widths disjoint frozen crossed_score
    """
    # arms of this call, how many a round has, the slots of their pool, which are allowed; room for scores and one row
    """
    arms count slots allowed scores single
    """
    # many rounds: where a round's arms begin, what the log showed, rewards (columns: 1, or an arm each), choices
    """
    first_arm shown rewards columns chosen
    """
    # the policy's tape of uniforms, and the most that one round reads of it
    """
    tape tape_size cursor draws
    """
    # scores across the arms of a pool: a line a feature (or pair of features), a column an arm
    """
    table table_score table_learned table_theta table_square table_cross table_rest table_width2 table_stamps table_ring
    table_work
    table_places table_lanes table_lines table_features
    """
    # what the last call says: why it came back, which row, which model, at which position in the pool
    """
    status fault_row model position line resumed asked
    """,
    """
    kappa sigmas epsilon errors learned probability
    """,
)
policy = record_at(POLICY, "p")
