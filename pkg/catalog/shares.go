package catalog

// Holders are the names of those for whom some work is done. In the mirror, the
// first one is the host of an origin, and the second one is the caller, if one waits
// for the work.
type Holders []string

// Shares bound how much work is done at once, and how much of it for one holder.
// So a slow or greedy holder leaves room to others.
type Shares struct {
	// Count is the maximum of work at once.
	Count int
	// Each has the maximum for one first holder, for one second holder, and so on.
	Each []int
}

// Next returns the index of the waiting work that may begin beside the running
// work, or -1 if none may. It is the work whose holders have the least running
// work, and the first if several have as little.
func (s Shares) Next(running, waiting []Holders) int {
	if len(running) >= s.Count {
		return -1
	}
	held := count(running)
	next, least := -1, 0
	for i, holders := range waiting {
		if sum := held.of(holders); (next < 0 || sum < least) && s.allow(held, holders) {
			next, least = i, sum
		}
	}
	return next
}

func (s Shares) allow(held counts, holders Holders) bool {
	for i, name := range holders {
		if i < len(s.Each) && held[holder{i, name}] >= s.Each[i] {
			return false
		}
	}
	return true
}

// Surplus returns the index of the work that gives way if there is too much. It is
// the work whose holders have the most, and the last if several have as much. The
// work of its first and of its second holder adds up, as for [Shares.Next].
func Surplus(work []Holders) int {
	held := count(work)
	surplus, most := -1, 0
	for i, holders := range work {
		if sum := held.of(holders); sum >= most {
			surplus, most = i, sum
		}
	}
	return surplus
}

// counts has how much work each holder has.
type counts map[holder]int

type holder struct {
	index int // in Holders
	name  string
}

func count(work []Holders) counts {
	held := make(counts)
	for _, holders := range work {
		for i, name := range holders {
			held[holder{i, name}]++
		}
	}
	return held
}

// of returns the work of some holders together.
func (c counts) of(holders Holders) (sum int) {
	for i, name := range holders {
		sum += c[holder{i, name}]
	}
	return sum
}
