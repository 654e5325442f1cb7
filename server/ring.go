package server

// ringKept is how many items' memory an empty ring keeps, ringFirst how many it
// begins with. Both are powers of two.
const (
	ringKept  = 64
	ringFirst = 8
)

// ring is a first-in first-out queue in a circle of memory that grows as needed and
// goes, if it was large, when the queue is empty. The zero value is empty.
type ring[T any] struct {
	items []T // as long as a power of two
	head  int // of the oldest item
	n     int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) at(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.items) {
		r.grow()
	}
	r.n++
	*r.at(r.n - 1) = v
}

func (r *ring[T]) grow() {
	larger := make([]T, max(ringFirst, 2*len(r.items)))
	n := copy(larger, r.items[r.head:])
	copy(larger[n:], r.items[:r.head])
	r.items, r.head = larger, 0
}

// front is the oldest item. There must be one.
func (r *ring[T]) front() *T { return r.at(0) }

// pop takes the oldest item out. There must be one.
func (r *ring[T]) pop() T {
	p := r.front()
	v := *p
	var zero T
	*p = zero
	r.head = (r.head + 1) & (len(r.items) - 1)
	if r.n--; r.n == 0 && len(r.items) > ringKept {
		*r = ring[T]{}
	}
	return v
}
