# The members of a cluster of Vault can look for each other with the clients of 14
# clouds, which are a third of the source of Vault and of OpenBao.
/go-discover\/provider\//d
/&[a-z]*\.Provider{}/d
