package keepalive

type entries []*Entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].due().Before(h[j].due()) }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = int32(i+1), int32(j+1)
}

func (h *entries) Push(x any) {
	e := x.(*Entry)
	*h = append(*h, e)
	e.place = int32(len(*h))
}

func (h *entries) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.place = 0
	return e
}
